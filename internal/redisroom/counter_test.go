package redisroom_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// counterOf returns the name of the key in which key's counter is.
func counterOf(t *testing.T, s *redistest.Server, key string) string {
	t.Helper()
	keys, err := s.Client().Keys(background, "leasehold:"+key+"\x1fr*").Result()
	if err != nil || len(keys) != 1 {
		t.Fatalf("the keys of %s's counter: %q, %v", key, keys, err)
	}
	return keys[0]
}

// aged gives key a counter with the given age and the given time to live.
func aged(t *testing.T, s *redistest.Server, d driver.Driver, key string, age, left time.Duration) (token int64) {
	t.Helper()
	acquire(t, d, request(key, "before"), driver.Granted)
	release(t, d, key, "before", driver.Released)
	token = s.Client().Time(background).Val().Add(-age).UnixMicro()
	if err := s.Client().Set(background, counterOf(t, s, key), token, left).Err(); err != nil {
		t.Fatal(err)
	}
	return token
}

// survives asserts that the counter outlives a lease of ten seconds.
func survives(t *testing.T, s *redistest.Server, key string) {
	t.Helper()
	if left := s.Client().PTTL(background, counterOf(t, s, key)).Val(); left < 10*time.Second {
		t.Errorf("the counter of %s ends in %v, before the lease may", key, left)
	}
}

func TestCounter_OutlivesTheLeaseThatItCounted(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		key := t.Name()
		old := aged(t, s, d, key, 40*time.Minute, time.Second)

		first := acquire(t, d, request(key, "a"), driver.Granted)
		if first.Token <= old {
			t.Fatalf("token %d after %d", first.Token, old)
		}
		survives(t, s, key)
		if again := acquire(t, d, request(key, "a"), driver.Granted); again.Token != first.Token {
			t.Errorf("token %d when asked again, want %d", again.Token, first.Token)
		}
		release(t, d, key, "a", driver.Released)

		// The counter is young again: a grant is one call, unless it makes a new
		// connection.
		var got map[string]int64
		for range 5 {
			if got != nil {
				release(t, d, key, "b", driver.Released)
			}
			if got = s.Calls(t, func() { acquire(t, d, request(key, "b"), driver.Granted) }); got["evalsha"] == 1 {
				break
			}
		}
		if got["evalsha"] != 1 || got["incr"] != 1 {
			t.Errorf("the next grant costs %v, want the free path", got)
		}
		renewed := renew(t, d, lease(key, "b"), driver.Granted)
		if renewed.Token <= first.Token {
			t.Errorf("token %d after %d", renewed.Token, first.Token)
		}
	})
}

func TestCounter_IsSeededWhileTheServersClockIsUnknown(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		key := t.Name()
		aged(t, s, open(s.URL()), key, time.Minute, time.Second)
		before := s.Client().Time(background).Val().UnixMicro()
		if got := acquire(t, open(s.URL()), request(key, "a"), driver.Granted); got.Token < before {
			t.Errorf("token %d, want the server's clock, above %d", got.Token, before)
		}
		survives(t, s, key)
	})
}

func TestCounter_IsProlongedWithTheLease(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		key := t.Name()
		first := acquire(t, d, request(key, "a"), driver.Granted)
		old := first.Token - (40 * time.Minute).Microseconds()
		if err := s.Client().Set(background, counterOf(t, s, key), old, time.Second).Err(); err != nil {
			t.Fatal(err)
		}
		if got := renew(t, d, lease(key, "a"), driver.Granted); got.Token != old {
			t.Errorf("renewed with token %d, want %d", got.Token, old)
		}
		survives(t, s, key)

		long := lease(key, "a")
		long.TTL = 2 * time.Hour
		renew(t, d, long, driver.Granted)
		if left := s.Client().PTTL(background, counterOf(t, s, key)).Val(); left < long.TTL {
			t.Errorf("the counter ends in %v, before a lease of %v", left, long.TTL)
		}
	})
}

func TestCounter_LostUnderALeaseIsReplacedByAGreaterOne(t *testing.T) {
	s := redistest.Start(t)
	eachClient(t, func(t *testing.T, open func(string) store) {
		d := open(s.URL())
		key := t.Name()
		first := acquire(t, d, request(key, "a"), driver.Granted)
		s.Client().Del(background, counterOf(t, s, key))

		again := renew(t, d, lease(key, "a"), driver.Granted)
		if again.Token <= first.Token {
			t.Errorf("token %d after the counter of %d was lost", again.Token, first.Token)
		}
		survives(t, s, key)
		if got := acquire(t, d, request(key, "a"), driver.Granted); got.Token != again.Token {
			t.Errorf("token %d, then %d", again.Token, got.Token)
		}
		release(t, d, key, "a", driver.Released)
		if next := acquire(t, d, request(key, "b"), driver.Granted); next.Token <= again.Token {
			t.Errorf("token %d after %d", next.Token, again.Token)
		}
	})
}
