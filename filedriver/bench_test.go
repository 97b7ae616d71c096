package filedriver

import (
	"strconv"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

func BenchmarkAcquireRelease(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		id := "id" + strconv.Itoa(i)
		reply, err := s.Acquire(b.Context(), driver.Request{Key: "k", ID: id, Owner: "bench", TTL: time.Minute, Since: time.Now()})
		if err != nil || reply.State != driver.Granted {
			b.Fatal(reply, err)
		}
		if reply, err = s.Release(b.Context(), driver.Ref{Key: "k", ID: id}); err != nil || reply.State != driver.Released {
			b.Fatal(reply, err)
		}
	}
}

func BenchmarkRenew100(b *testing.B) {
	s, err := Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	refs := make([]driver.Ref, 100)
	for i := range refs {
		refs[i] = driver.Ref{Key: "key" + strconv.Itoa(i), ID: "id", TTL: time.Minute}
		if _, err := s.Acquire(b.Context(), driver.Request{Key: refs[i].Key, ID: "id", TTL: time.Minute}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.Renew(b.Context(), refs, func(i int, reply driver.Reply, err error) {
			if err != nil || reply.State != driver.Granted {
				b.Fatal(i, reply, err)
			}
		})
	}
}
