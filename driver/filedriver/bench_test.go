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

// BenchmarkRenew_BesideWaiters shows the cost of a long queue for each call.
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
					Key: "k", ID: "some-lease-id-of-22-bytes-" + strconv.Itoa(i), Owner: "host.example.org:1234", TTL: time.Hour, TicketTTL: time.Hour,
					ConfirmWindow: time.Second, HintAddress: "0123456789abcdef.1", Since: time.Now(),
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

// BenchmarkHandOver_ToAnotherStore measures from the release to the hint at a
// waiter that has a mailbox of its own, as another process would.
func BenchmarkHandOver_ToAnotherStore(b *testing.B) {
	dir := b.TempDir()
	var stores [2]*Driver
	var addresses [2]string
	hints := make(chan driver.Hint, 16)
	for i := range stores {
		s, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		sub, err := s.Watch(func(h driver.Hint) { hints <- h })
		if err != nil {
			b.Fatal(err)
		}
		stores[i], addresses[i] = s, sub.Address()
	}
	acquire := func(i int) string {
		s, id := stores[i%2], "id"+strconv.Itoa(i)
		_, err := s.Acquire(b.Context(), driver.Request{
			Key: "k", ID: id, TTL: time.Minute, TicketTTL: time.Minute, ConfirmWindow: time.Minute, HintAddress: addresses[i%2],
		})
		if err != nil {
			b.Fatal(err)
		}
		return id
	}
	holder := acquire(0)
	for i := 1; b.Loop(); i++ {
		b.StopTimer()
		waiter := acquire(i)
		b.StartTimer()
		if _, err := stores[(i+1)%2].Release(b.Context(), driver.Ref{Key: "k", ID: holder}); err != nil {
			b.Fatal(err)
		}
		for h := range hints {
			if h.Kind == driver.HintGranted && h.ID == waiter {
				break
			}
		}
		holder = waiter
	}
}
