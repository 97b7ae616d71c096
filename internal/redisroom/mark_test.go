package redisroom_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/marktest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestGuard_AServerWithoutAMarkOpensNoUnknownRoom(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		guarded := request(t.Name(), "a")
		guarded.Guard = true
		forgets := func(why string) {
			t.Helper()
			for _, wait := range []time.Duration{0, time.Minute} {
				guarded.TicketTTL = wait
				if _, err := d.Acquire(t.Context(), guarded); !errors.Is(err, driver.ErrAmnesia) {
					t.Fatalf("%s: %v", why, err)
				}
			}
			guarded.TicketTTL = 0
			for _, key := range s.Keys(t) {
				if key != "leasehold:\x1fm" {
					t.Fatalf("%s: a refusal leaves %q", why, key)
				}
			}
		}
		marker := d.(driver.Marker)
		if mark, ok, err := marker.Marked(t.Context()); ok || err != nil {
			t.Fatalf("marked: %+v, %v, %v", mark, ok, err)
		}
		forgets("without a mark")

		const quarantine = 400 * time.Millisecond
		if err := marker.Mark(t.Context(), driver.Mark{Quarantine: quarantine}, ""); err != nil {
			t.Fatal(err)
		}
		if mark, ok, err := marker.Marked(t.Context()); mark.Quarantine > quarantine || !ok || err != nil {
			t.Fatalf("marked: %+v, %v, %v", mark, ok, err)
		}
		eventually(t, "the quarantine is over", func() bool {
			_, err := d.Acquire(t.Context(), guarded)
			if err != nil && !errors.Is(err, driver.ErrAmnesia) {
				t.Fatal(err)
			}
			return err == nil
		})
		release(t, d, t.Name(), "a", driver.Released)

		acquaint(t, d)

		// The key's token is known: nobody looks at the mark.
		if err := s.Client().Del(t.Context(), "leasehold:\x1fm").Err(); err != nil {
			t.Fatal(err)
		}
		got := s.Calls(t, func() { acquire(t, d, guarded, driver.Granted) })
		if want := (map[string]int64{"evalsha": 1, "set": 1, "incr": 1}); !maps.Equal(got, want) {
			t.Errorf("a free lock costs %v, want %v", got, want)
		}
		if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		forgets("all lost")
	})
}

// TestGuard_OfAnIdThatIsUsedOnce: the mark and the key of the id are two keys
// beside the room's.
func TestGuard_OfAnIdThatIsUsedOnce(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		guarded := onceRequest(t.Name(), "a")
		guarded.Guard = true
		if _, err := d.Acquire(t.Context(), guarded); !errors.Is(err, driver.ErrAmnesia) {
			t.Fatalf("without a mark: %v", err)
		}
		if err := d.(driver.Marker).Mark(t.Context(), driver.Mark{}, ""); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} { // a counter that is made, and one that is there
			guarded.ID = id
			ref := onceRef(guarded.Key, id)
			ref.Uncontended = acquire(t, d, guarded, driver.Granted).Uncontended
			if got, err := d.Release(t.Context(), ref); err != nil || got.State != driver.Released {
				t.Fatalf("%+v, %v", got, err)
			}
			acquire(t, d, guarded, driver.Gone)
		}
		if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRaise_OutlivesTheHolderOfTheFirstForm(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d, key := open(s.URL()), t.Name()
		first := acquire(t, d, request(key, "a"), driver.Granted)
		ref := lease(key, "a")
		// As of another server whose clock is half an hour ahead.
		ref.Token = first.Token + (30 * time.Minute).Microseconds()
		if got := renew(t, d, ref, driver.Granted); got.Token != ref.Token {
			t.Fatalf("token %d, want %d", got.Token, ref.Token)
		}
		if got := renew(t, d, lease(key, "a"), driver.Granted); got.Token != ref.Token {
			t.Fatalf("token %d on the free path, want %d", got.Token, ref.Token)
		}
		// The counter lives until the server's own clock has passed the token.
		life := time.Duration(0)
		for _, name := range s.Keys(t) {
			life = max(life, s.Client().PTTL(t.Context(), name).Val())
		}
		if life < 89*time.Minute || life > 91*time.Minute {
			t.Errorf("the counter lives for %v, want an hour and a half", life)
		}
		got := s.Calls(t, func() { release(t, d, key, "a", driver.Released) })
		if got["evalsha"] != 1 || got["del"] != 1 || got["hget"] > 0 {
			t.Errorf("the release of a lease whose token was raised left the free path: %v", got)
		}
		if got := acquire(t, d, request(key, "b"), driver.Granted); got.Token != ref.Token+1 {
			t.Fatalf("token %d, want %d", got.Token, ref.Token+1)
		}
		release(t, d, key, "b", driver.Released)
		if err := s.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestMark_HR_A8_IsSetOnlyWhileTheServerIsReserved(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		forget := func() { s.Client().FlushAll(t.Context()) }
		pass := func(d time.Duration) { // what would end within d ends now
			for _, key := range s.Keys(t) {
				if left := s.Client().PTTL(t.Context(), key).Val(); left > 0 && left <= d {
					s.Client().PExpire(t.Context(), key, 0)
				}
			}
		}
		marktest.Reservations(t, open(s.URL()).(driver.Marker), pass, forget)
		forget()
	})
}
