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

// BenchmarkRenew_BesideWaiters shows what a long queue costs every call.
func BenchmarkRenew_BesideWaiters(b *testing.B) {
	for _, waiters := range []int{0, 10, 100, 1000} {
		b.Run(strconv.Itoa(waiters), func(b *testing.B) {
			s, err := Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			for i := range waiters + 1 {
				_, err := s.Acquire(b.Context(), driver.Request{
					Key: "k", ID: "some-lease-id-of-22-bytes-" + strconv.Itoa(i), Owner: "host.example.org:1234", TTL: time.Hour, Wait: time.Hour,
					Confirm: time.Second, Notify: "0123456789abcdef.1", Since: time.Now(),
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			ref := []driver.Ref{{Key: "k", ID: "some-lease-id-of-22-bytes-0", TTL: time.Hour}}
			b.ReportAllocs()
			for b.Loop() {
				s.Renew(b.Context(), ref, func(_ int, reply driver.Reply, err error) {
					if err != nil || reply.State != driver.Granted {
						b.Fatal(reply, err)
					}
				})
			}
		})
	}
}
