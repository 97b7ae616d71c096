package fence_test

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/fence"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

const (
	write = `return redis.call('SET', KEYS[1], ARGV[1])`
	read  = `return redis.call('GET', KEYS[1])`
)

func fenced(rdb redis.Scripter) fence.Redis {
	return fence.Redis{Eval: func(ctx context.Context, script string, keys []string, args ...any) (any, error) {
		return rdb.Eval(ctx, script, keys, args...).Result()
	}}
}

func by(token int64, owner string) fence.Claim { return fence.Claim{Token: token, Owner: owner} }

// wantStale checks a refusal and its greatest claim.
func wantStale(t *testing.T, err error, greatest fence.Claim) {
	t.Helper()
	var stale *fence.StaleError
	if !errors.As(err, &stale) || !errors.Is(err, fence.ErrStale) || stale.Greatest != greatest {
		t.Errorf("%v, want a refusal after %v", err, greatest)
	}
}

func TestRedis_RefusesWhatComesAfterAGreaterToken(t *testing.T) {
	rdb := redistest.Start(t).Client()
	r := fenced(rdb)
	do := func(c fence.Claim, body string, args ...any) (any, error) {
		return r.Do(t.Context(), "{k}:fence", c, body, []string{"{k}"}, args...)
	}
	if _, err := do(by(10, "alpha"), write, "a"); err != nil {
		t.Fatal(err)
	}
	// The next holder announces itself by reading.
	if got, err := do(by(1<<53-2, "beta"), read); err != nil || got != "a" {
		t.Fatal(got, err)
	}
	_, err := do(by(10, "alpha"), write, "stale")
	wantStale(t, err, by(1<<53-2, "beta"))
	_, err = do(by(1<<53-3, "gamma"), read)
	wantStale(t, err, by(1<<53-2, "beta"))
	_, err = do(by(1<<53-2, "gamma"), read)
	wantStale(t, err, by(1<<53-2, "beta"))
	if got, err := do(by(1<<53-2, "beta"), read); err != nil || got != "a" {
		t.Errorf("the holder reads %v, %v", got, err)
	}
	if got, err := do(by(1<<53-1, "gamma"), `redis.call('DEL', KEYS[1])`); err != nil || got != nil {
		t.Errorf("a body without a result: %v, %v", got, err)
	}
}

// TestRedis_HR_F5_BodyMayReturnSeveralValues, and an error, which is one here.
func TestRedis_HR_F5_BodyMayReturnSeveralValues(t *testing.T) {
	type failure struct{}
	r := fenced(redistest.Start(t).Client())
	for body, want := range map[string]any{
		`return 'a', 2`:            []any{"a", int64(2)},
		`return unpack({1, 2, 3})`: []any{int64(1), int64(2), int64(3)},
		`return {'a'}`:             []any{"a"},
		`return 'a'`:               "a",
		`return nil, 'a'`:          []any{},
		`return nil`:               nil,
		``:                         nil,
		`return redis.error_reply('ERR too little is left')`: failure{},
		`return redis.pcall('NONE')`:                         failure{},
		`return {err = 'ERR too little is left'}`:            failure{},
	} {
		got, err := r.Do(t.Context(), "f", by(1, "a"), body, nil)
		_, fails := want.(failure)
		if fails != (err != nil) || errors.Is(err, fence.ErrStale) || !fails && !reflect.DeepEqual(got, want) {
			t.Errorf("%q gives %v, %v, want %v", body, got, err, want)
		}
	}
}

func TestRedis_ForeignDataAtTheFenceIsAnError(t *testing.T) {
	rdb := redistest.Start(t).Client()
	check(t, rdb.Set(t.Context(), "f", "text", 0).Err())
	_, err := fenced(rdb).Do(t.Context(), "f", by(1, "a"), write, []string{"k"}, "v")
	if err == nil || errors.Is(err, fence.ErrStale) || rdb.Exists(t.Context(), "k").Val() != 0 {
		t.Errorf("%v", err)
	}
}

// TestRedis_RepliesOfAnyClient: some clients, such as redigo, return strings as bytes.
func TestRedis_RepliesOfAnyClient(t *testing.T) {
	for _, row := range []struct {
		reply   any
		refusal bool
	}{
		{nil, false}, {"OK", false}, {[]any{}, false}, {[]any{int64(0), "x", "y"}, false}, {[]any{int64(1), "a", "b"}, false},
		{[]any{int64(0), "42", "worker-7"}, true}, {[]any{int64(0), []byte("42"), []byte("worker-7")}, true},
	} {
		r := fence.Redis{Eval: func(context.Context, string, []string, ...any) (any, error) { return row.reply, nil }}
		_, err := r.Do(t.Context(), "f", by(41, "worker-6"), read, nil)
		if row.refusal {
			wantStale(t, err, by(42, "worker-7"))
		} else if err == nil || errors.Is(err, fence.ErrStale) {
			t.Errorf("reply %v: %v", row.reply, err)
		}
	}
}

// check ends the test if err is not nil.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
