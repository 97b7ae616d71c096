package library_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// refusal is an argument out of its bounds, with the words that its error must contain.
type refusal struct {
	name  string
	opts  []leasehold.Option
	words []string // the value and the bound
}

func one(o leasehold.Option) []leasehold.Option { return []leasehold.Option{o} }

func refusals() []refusal {
	day := 24 * time.Hour
	century := time.Duration(math.MaxInt64)
	all := []refusal{
		{"nil option", one(nil), []string{"nil option"}},
		{"nil logger", one(leasehold.WithLogger(nil)), []string{"nil logger"}},
		{"max wait -1ns", one(leasehold.WithMaxWait(-1)), []string{"-1ns", "24h"}},
		{"max outage 1ns", one(leasehold.WithMaxOutage(1)), []string{"maximum outage", "1ns", "24h"}},
		{"release timeout 0", one(leasehold.WithReleaseTimeout(0)), []string{"0s", "1ms", "24h"}},
		{"owner empty", one(leasehold.WithReentrantOwner("")), []string{"owner is empty"}},
		{"name empty", one(leasehold.WithName("")), []string{"name is empty"}},
		{"owner long", one(leasehold.WithReentrantOwner(strings.Repeat("x", 257))), []string{"257", "256"}},
		{"owner control", one(leasehold.WithReentrantOwner("a\nb")), []string{"control"}},
		{"owner bytes", one(leasehold.WithReentrantOwner("\xff")), []string{"UTF-8"}},
		{"labels", one(leasehold.WithLabels(map[string]string{"a": strings.Repeat("x", 1020)})), []string{"1024"}},
		{"policy unknown", one(leasehold.WithPolicy(leasehold.ReadersFirst + 1)), []string{"policy 4"}},
		{"strict order and barging", []leasehold.Option{leasehold.WithStrictOrder(), leasehold.WithPolicy(leasehold.Barging)}, []string{"strict order", "barging"}},
		{"strict order and retry", []leasehold.Option{leasehold.WithStrictOrder(), leasehold.WithRetry(leasehold.Constant(time.Second))}, []string{"strict order", "retry"}},
		{"min token -1", one(leasehold.WithMinToken(-1)), []string{"-1", "9007199254740991"}},
		{"min token 2^53", one(leasehold.WithMinToken(1 << 53)), []string{"9007199254740992", "9007199254740991"}},
		{"attempts -1", one(leasehold.WithMaxRenewAttempts(-1)), []string{"-1", "1000"}},
		{"attempts 1001", one(leasehold.WithMaxRenewAttempts(1001)), []string{"1001", "1000"}},
		{"hold contradiction", []leasehold.Option{leasehold.WithMinHold(2 * time.Minute), leasehold.WithMaxHold(time.Minute)}, []string{"2m0s", "1m0s"}},
		{"renewal after the end", one(leasehold.WithRenewFraction(0.995)), []string{"0.995", "30s", "29.698s"}},
		{"drift that leaves nothing", one(leasehold.WithDriftFactor(0.9)), []string{"30s", "2.998s"}},
		{"nothing left at all", []leasehold.Option{leasehold.WithTTL(10 * time.Millisecond), leasehold.WithDriftFactor(0.99), leasehold.WithoutRenewal()}, []string{"10ms", "0.99"}},
	}
	for _, f := range []float64{0, 1, -0.1, 1.5, math.NaN(), math.Inf(1), math.Inf(-1)} {
		all = append(all, refusal{fmt.Sprint("fraction ", f), one(leasehold.WithRenewFraction(f)), []string{fmt.Sprint(f), "0 and 1"}})
		if f != 0 {
			all = append(all, refusal{fmt.Sprint("drift ", f), one(leasehold.WithDriftFactor(f)), []string{fmt.Sprint(f), "below 1"}})
		}
	}
	// L17: TTL 0, −1, 1 ns, 300 years, and the like for all durations.
	for name, set := range map[string]func(time.Duration) leasehold.Option{
		"TTL": leasehold.WithTTL, "maximum hold": leasehold.WithMaxHold, "minimum hold": leasehold.WithMinHold,
		"lock delay": leasehold.WithLockDelay, "release timeout": leasehold.WithReleaseTimeout, "maximum wait": leasehold.WithMaxWait,
	} {
		for _, d := range []time.Duration{-1, 1, time.Millisecond - 1, day + 1, century, math.MinInt64} {
			all = append(all, refusal{fmt.Sprint(name, " ", d), one(set(d)), []string{name, d.String(), "24h"}})
		}
	}
	for _, b := range []struct {
		b    leasehold.Backoff
		word string
	}{
		{leasehold.Backoff{}, "1h"},
		{leasehold.Constant(-time.Second), "-1s"},
		{leasehold.Constant(time.Microsecond), "1µs"},
		{leasehold.Constant(2 * time.Hour), "2h"},
		{leasehold.Linear(time.Second, -1), "-1ns"},
		{leasehold.Exponential(time.Second, century), century.String()},
		{leasehold.Backoff{Base: time.Second, Step: -1}, "-1ns"},
		{leasehold.Backoff{Base: time.Second, Factor: 11}, "11"},
		{leasehold.Backoff{Base: time.Second, Factor: math.NaN()}, "NaN"},
		{leasehold.Backoff{Base: time.Second, Jitter: 1.1}, "1.1"},
		{leasehold.Backoff{Base: time.Second, Jitter: math.NaN()}, "NaN"},
		{leasehold.Backoff{Base: time.Second, Attempts: -1}, "-1"},
	} {
		all = append(all, refusal{fmt.Sprintf("retry %+v", b.b), one(leasehold.WithRetry(b.b)), []string{"retry", b.word}})
	}
	return all
}

func TestOptions_L17_RefusedBeforeAnyRequestNamingValueAndBound(t *testing.T) {
	d := newFault(memdriver.New())
	c := newClient(t, d)
	for _, r := range refusals() {
		t.Run(r.name, func(t *testing.T) {
			_, atNew := leasehold.New(d, r.opts...)
			_, atLock := c.Mutex("orders/42", r.opts...).Lock(context.Background())
			_, atTry := c.Mutex("orders/42", r.opts...).TryLock(context.Background())
			for _, err := range []error{atNew, atLock, atTry} {
				wantErr(t, err, leasehold.ErrInvalid)
				for _, word := range append(r.words, "leasehold: ") {
					if err != nil && !strings.Contains(err.Error(), word) {
						t.Errorf("%q does not name %q", err, word)
					}
				}
			}
		})
	}
	if n := len(d.calls); n > 0 {
		t.Errorf("%d requests", n)
	}
}

func TestOptions_BoundsThemselvesAreAccepted(t *testing.T) {
	day := 24 * time.Hour
	for _, opts := range [][]leasehold.Option{
		{leasehold.WithTTL(leasehold.MinTTL)}, {leasehold.WithTTL(leasehold.MaxTTL)},
		{leasehold.WithRenewFraction(0.001)}, {leasehold.WithRenewFraction(0.9)},
		{leasehold.WithDriftFactor(0)}, {leasehold.WithDriftFactor(0.99), leasehold.WithRenewFraction(0.001)},
		{leasehold.WithMaxRenewAttempts(0)}, {leasehold.WithMaxRenewAttempts(1000)},
		{leasehold.WithMaxWait(0)}, {leasehold.WithMaxWait(time.Millisecond)}, {leasehold.WithMaxWait(day)},
		{leasehold.WithMaxHold(10 * time.Millisecond)}, {leasehold.WithMinHold(time.Millisecond)}, {leasehold.WithLockDelay(day)},
		{leasehold.WithName(strings.Repeat("x", 256))}, {leasehold.WithName("{a}:b c ü")},
		{leasehold.WithStrictOrder()}, {leasehold.WithPolicy(leasehold.ReadersFirst)},
		{leasehold.WithLocalHandover(1)}, {leasehold.WithLocalHandover(leasehold.MaxLocalHandover)},
		{leasehold.WithMinToken(0)}, {leasehold.WithLogger(slog.Default())}, {leasehold.WithLabels(nil)},
		{leasehold.WithRetry(leasehold.Backoff{Base: time.Millisecond, Step: time.Hour, Factor: 10, Cap: time.Hour, Jitter: 1})},
	} {
		bubble(t, func(t *testing.T, store *memdriver.Driver) {
			if l := lock(t, newClient(t, store, opts...), "k"); l.State() != leasehold.Held {
				t.Error(l.State())
			}
		})
	}
}

func TestPolicy_IsRefusedWhereItHasNoMeaning(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		for _, p := range []leasehold.Policy{leasehold.FIFO, leasehold.Barging, leasehold.WritersFirst, leasehold.ReadersFirst} {
			own := leasehold.WithPolicy(p)
			for _, opts := range [][2][]leasehold.Option{
				{nil, {own}}, {{own}, nil}, {{own}, {leasehold.WithTTL(ttl)}}, // of the client, and of the lock
			} {
				c, d := open(t, store, opts[0]...)
				for kind, try := range map[string]func(context.Context) (*leasehold.Lease, error){
					"mutex":     c.Mutex("k", opts[1]...).TryLock,
					"semaphore": c.Semaphore("k", 2, opts[1]...).TryLock,
					"writer":    c.RWMutex("k", opts[1]...).TryLock,
					"reader":    c.RWMutex("k", opts[1]...).TryRLock,
				} {
					before := d.count(acquire)
					l, err := try(t.Context())
					// As the default of a client it applies to the locks for which it has a meaning.
					readers := p == leasehold.WritersFirst || p == leasehold.ReadersFirst
					if readers && opts[0] == nil && (kind == "mutex" || kind == "semaphore") {
						wantErr(t, err, leasehold.ErrInvalid)
						if d.count(acquire) != before || err != nil && !strings.Contains(err.Error(), p.String()) {
							t.Errorf("%s with %v: %v after %d requests", kind, p, err, d.count(acquire)-before)
						}
					} else if err != nil || l.Release() != nil {
						t.Errorf("%s with %v: %v", kind, p, err)
					}
				}
			}
		}
	})
}

func TestKeys_R4_RefusedBeforeAnyRequest(t *testing.T) {
	d := newFault(memdriver.New())
	c := newClient(t, d)
	for _, key := range []string{"", strings.Repeat("k", 513), "a\x00b", "a\nb", "a\x7fb", "a\u0085b", "\xff", "a\xc3"} {
		_, err := c.Mutex(key).Lock(t.Context())
		wantErr(t, err, leasehold.ErrInvalid)
		_, err = c.Inspect(t.Context(), key)
		wantErr(t, err, leasehold.ErrInvalid)
	}
	if n := len(d.calls); n > 0 {
		t.Errorf("%d requests", n)
	}
	for _, key := range []string{"k", strings.Repeat("k", 512), "{a}b", "a:b", " ", "a b", "日本語", "{}", "}{"} {
		if l := lock(t, c, key); l.Key() != key {
			t.Errorf("key %q", l.Key())
		}
	}
}

func TestExtend_RefusesTTLOutOfBounds(t *testing.T) {
	d := newFault(memdriver.New())
	c := newClient(t, d)
	l := lock(t, c, "k")
	for _, ttl := range []time.Duration{0, -1, 1, leasehold.MinTTL - 1, leasehold.MaxTTL + 1, math.MaxInt64} {
		err := l.Extend(t.Context(), ttl)
		wantErr(t, err, leasehold.ErrInvalid)
		if !strings.Contains(err.Error(), ttl.String()) || !strings.Contains(err.Error(), "24h") {
			t.Errorf("%q does not name %v and its bound", err, ttl)
		}
	}
	if d.count(renew) > 0 {
		t.Error("it was asked for")
	}
	noErr(t, l.Extend(t.Context(), leasehold.MaxTTL))
}

// TestOptions_ReachTheStore: the conformance tests check their effects.
func TestOptions_ReachTheStore(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		ahead := time.Now().Add(time.Hour).UnixMicro()
		l := lock(t, c, "k", leasehold.WithMinHold(time.Minute), leasehold.WithLockDelay(time.Hour), leasehold.WithMinToken(ahead))
		if req := d.seen(acquire)[0].req; req.LockDelay != time.Hour || req.MinToken != ahead || l.Token() <= ahead {
			t.Errorf("%+v, granted with token %d", req, l.Token())
		}
		time.Sleep(20 * time.Second)
		giveBack(t, l)
		_, err := c.Mutex("k").TryLock(t.Context())
		var held *leasehold.HeldError
		if !errors.As(err, &held) || !held.Closed || held.Remaining != 40*time.Second {
			t.Errorf("%v, %+v, want closed for the rest of the minute", err, held)
		}
		start := time.Now()
		giveBack(t, must(t)(c.Mutex("k").Lock(t.Context())))
		if got := time.Since(start); got < 40*time.Second || got > 40*time.Second+10*time.Millisecond {
			t.Errorf("closed for %v", got)
		}
	})
}

func TestLabels_AreNotTheCallersMap(t *testing.T) {
	store := memdriver.New()
	c := newClient(t, store)
	labels := map[string]string{"job": "nightly"}
	m := c.Mutex("k", leasehold.WithLabels(labels))
	labels["job"] = "changed"
	l := must(t)(m.TryLock(t.Context()))
	snap, err := c.Inspect(t.Context(), "k")
	if err != nil || snap.Holders[0].Labels["job"] != "nightly" || snap.Holders[0].ID != l.ID() {
		t.Errorf("%+v, %v", snap, err)
	}
}

func TestBackoff_DelaysArePureAndBounded(t *testing.T) {
	for _, row := range []struct {
		b    leasehold.Backoff
		want []time.Duration
	}{
		{leasehold.Constant(time.Second), []time.Duration{time.Second, time.Second, time.Second}},
		{leasehold.Linear(time.Second, 2500*time.Millisecond), []time.Duration{time.Second, 2 * time.Second, 2500 * time.Millisecond}},
		{leasehold.Exponential(time.Second, 5*time.Second), []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second}},
		{leasehold.Alongside(), []time.Duration{150 * time.Millisecond, 150 * time.Millisecond}},
	} {
		for range 2 {
			for i, want := range row.want {
				if got := row.b.Delay(i + 1); got != want {
					t.Errorf("%+v: delay %d is %v, want %v", row.b, i+1, got, want)
				}
			}
		}
		for _, n := range []int{0, -1, math.MinInt, math.MaxInt32, math.MaxInt} {
			if d := row.b.Delay(n); d < row.want[0] || d > time.Hour {
				t.Errorf("%+v: delay %d is %v", row.b, n, d)
			}
		}
	}
}

func TestHeldError_TellsWhoForHowLongAndAfterWhat(t *testing.T) {
	err := error(&leasehold.HeldError{Key: "orders/42", Owner: "worker-7", Remaining: 12 * time.Second})
	if got, want := err.Error(), `leasehold: lock "orders/42": held by worker-7 for another 12s`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wantErr(t, err, leasehold.ErrHeld)
	err = &leasehold.HeldError{Key: "k", Position: 3, Waited: 1500 * time.Millisecond, Cause: context.DeadlineExceeded}
	if got, want := err.Error(), `leasehold: lock "k": held by others: gave up after 1.5s at place 3: context deadline exceeded`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wantErr(t, err, leasehold.ErrHeld, context.DeadlineExceeded)
	if strings.Contains((&leasehold.HeldError{Key: "k", Cause: context.Canceled}).Error(), "place") {
		t.Error("it names a place that it does not know")
	}
	if errors.Is(err, leasehold.ErrLost) || errors.Is(err, leasehold.ErrUnknown) {
		t.Error("matches too much")
	}
}

func TestElection_HR_F10_TextThatWouldBeChangedOnItsWayIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store)
		for _, value := range []string{"host\xff:80", "\x1b[2Jhost:80", "host\n"} {
			err := c.Election("k", value).Lead(t.Context(), func(context.Context, *leasehold.Lease) error { return nil })
			wantErr(t, err, leasehold.ErrInvalid)
		}
		for _, labels := range []map[string]string{{"a": "\xff"}, {"\xff": "a"}, {"a": "\x1b]0;x\a"}, {"\u009b": ""}} {
			_, err := c.Mutex("k", leasehold.WithLabels(labels)).TryLock(t.Context())
			wantErr(t, err, leasehold.ErrInvalid)
		}
		if n := d.count(acquire); n > 0 {
			t.Errorf("%d requests were sent", n)
		}
	})
}

func TestPing_ReturnsWhyNoLockCanBeTaken(t *testing.T) {
	noQuorum := fmt.Errorf("1 of 3: %w", driver.ErrNoQuorum)
	for name, row := range map[string]struct {
		on    verb
		fault fault
		want  error
	}{
		"a store that refuses": {acquire, refuses, errStoreIsLoading},
		"a wrong password":     {acquire, fault{skip: true, err: driver.ErrPermanent}, driver.ErrPermanent},
		"a minority":           {acquire, fault{skip: true, err: noQuorum}, leasehold.ErrNoQuorum},
		"a store that hangs":   {acquire, hangs, context.DeadlineExceeded},
		"a lost reply":         {release, loses, errReplyLost},
	} {
		runBubble(t, name, func(t *testing.T, store *memdriver.Driver) {
			c, d := open(t, store)
			d.on(row.on, 1, row.fault)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			wantErr(t, c.Ping(ctx), row.want, leasehold.ErrUnavailable)
			noErr(t, c.Ping(t.Context()))
			if seen := d.seen(acquire); seen[0].key != seen[1].key || seen[0].req.ID == seen[1].req.ID {
				t.Errorf("%+v", seen)
			}
			wantFree(t, store, d.calls[0].key)
			if s := c.Stats(); s != (leasehold.Stats{}) {
				t.Errorf("counted: %+v", s)
			}
		})
	}
}

func TestClient_HR_F10_EverythingSaysClosedAfterClose(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c := newClient(t, store)
		noErr(t, c.Close())
		_, inspect := c.Inspect(t.Context(), "k")
		_, leader := c.Election("k", "").Leader(t.Context())
		var keys error
		for _, keys = range c.Keys(t.Context(), "") {
		}
		_, lock := c.Mutex("k").Lock(t.Context())
		_, adopt := c.Mutex("k").Adopt(t.Context(), "ID")
		for name, err := range map[string]error{
			"inspect": inspect, "keys": keys, "lock": lock, "leader": leader, "adopt": adopt,
			"ping":   c.Ping(t.Context()),
			"break":  c.Break(t.Context(), "k", "id", "reason"),
			"resize": c.Semaphore("k", 3).Resize(t.Context(), 4),
		} {
			if !errors.Is(err, leasehold.ErrClosed) || errors.Is(err, leasehold.ErrUnavailable) || errors.Is(err, leasehold.ErrUnknown) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestErrors_HR_F10_SayEverythingOnceInOneLine: an error reads as a path without repetitions.
func TestErrors_HR_F10_SayEverythingOnceInOneLine(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, d := open(t, store, leasehold.WithTTL(ttl))
		never := func(context.Context) error { return nil }
		within := func(d time.Duration, cause error) context.Context {
			ctx, cancel := context.WithTimeoutCause(t.Context(), d, cause)
			t.Cleanup(cancel)
			return ctx
		}
		short := func() context.Context { return within(time.Second, nil) }
		ended := func(cause error) context.Context {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			return ctx
		}
		holder, _ := open(t, store)
		lock(t, holder, "held")
		once := func(name string, err error) {
			t.Helper()
			if err == nil {
				t.Errorf("%s: no error", name)
				return
			}
			seen := make(map[string]bool)
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: more than a line: %q", name, err)
			}
			for _, part := range regexp.MustCompile(`: |; `).Split(err.Error(), -1) {
				if seen[part] {
					t.Errorf("%s: %q twice in %q", name, part, err)
				}
				seen[part] = true
			}
		}
		_, err := leasehold.New(memdriver.New(), leasehold.WithTTL(0), leasehold.WithName(""))
		if wantErr(t, err, leasehold.ErrInvalid); strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("more than a line: %q", err)
		}
		patient := leasehold.WithMaxWait(time.Second)
		for what, f := range map[string]*fault{"answers": nil, "hangs": &hangs, "fails": &fails, "refuses": &refuses} {
			if f != nil {
				d.on(acquire, 0, *f)
				d.on(renew, 0, *f)
			}
			for key, ask := range map[string]func(*leasehold.Mutex, context.Context) (*leasehold.Lease, error){"Lock": (*leasehold.Mutex).Lock, "TryLock": (*leasehold.Mutex).TryLock} {
				for name, ctx := range map[string]context.Context{
					"a time-out": short(), "a time-out with a cause": within(3*time.Second/2, errors.New("too late")),
					"an end": ended(nil), "a cause": ended(errors.New("shutting down")),
					"a wrapped end": ended(fmt.Errorf("the server: %w", context.Canceled)),
				} {
					_, err := ask(c.Mutex("held"), ctx)
					once(fmt.Sprintf("%s of a store that %s, under %s", key, what, name), err)
				}
				_, err := ask(c.Mutex("held", patient), t.Context())
				once(fmt.Sprintf("%s with a maximum wait, of a store that %s", key, what), err)
				_, err = ask(c.Mutex("held", patient, leasehold.WithRetry(leasehold.Constant(100*time.Millisecond))), t.Context())
				once(fmt.Sprintf("%s with retry, of a store that %s", key, what), err)
			}
			d.heal()
			under := short()
			once("Do whose context ended", leasehold.Do(under, c.Mutex("k"), func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}))
			once("All", leasehold.Do(t.Context(), leasehold.All(c.Mutex("a"), c.Mutex("held", patient)), never))
			l := lock(t, c, "lost")
			if f != nil {
				d.on(renew, 0, *f)
				d.on(release, 0, *f)
				once("Extend of a store that "+what, l.Extend(short(), ttl))
				<-l.Context().Done()
				once("the cause of a loss, of a store that "+what, context.Cause(l.Context()))
				once("release after it", l.Release())
			}
			d.heal()
			time.Sleep(time.Minute)
		}
	})
}

func TestReentry_HR_F10_UnderALeaseThatReachedItsMaximumIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, store *memdriver.Driver) {
		c, _ := open(t, store)
		m := c.Mutex("k", leasehold.WithMaxHold(time.Second))
		outer := must(t)(m.Lock(t.Context()))
		time.Sleep(2 * time.Second)
		for _, ctx := range []context.Context{outer.Context(), context.WithoutCancel(outer.Context())} {
			l, err := m.Lock(ctx)
			if err == nil {
				t.Errorf("a fresh hold: %v", l.State())
				_ = l.Release()
				continue
			}
			wantErr(t, err, leasehold.ErrMaxHold)
		}
		giveBack(t, outer)
	})
}
