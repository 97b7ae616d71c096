package roomdriver_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// forEachCounting runs f on the tables with a counter.
func forEachCounting(t *testing.T, f func(t *testing.T, r *rows, d *roomdriver.Driver)) {
	for name, table := range map[string]func(*ledger) roomdriver.Table{
		"transactions": func(l *ledger) roomdriver.Table { return l },
		"exchanges":    func(l *ledger) roomdriver.Table { return exchanging{l} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRows()
				f(t, r, open(t, table(&ledger{rows: r, counts: true})))
			})
		})
	}
}

func TestCounter_RemembersTokensOfRemovedRecords(t *testing.T) {
	forEachCounting(t, func(t *testing.T, r *rows, d *roomdriver.Driver) {
		last := int64(0)
		for _, step := range []time.Duration{0, time.Hour, -3 * time.Hour, time.Minute} {
			r.skew += step
			for _, id := range []string{"a", "b"} {
				reply := acquire(t, d, request(id), driver.Granted)
				if reply.Token <= last {
					t.Errorf("token %d follows %d", reply.Token, last)
				}
				if snap, err := d.Inspect(t.Context(), "k"); err != nil || len(snap.Holders) != 1 || snap.Holders[0].Token != reply.Token {
					t.Errorf("%+v, %v; want the token %d", snap.Holders, err, reply.Token)
				}
				last = reply.Token
				release(t, d, driver.Ref{Key: "k", ID: id}, driver.Released)
				if n := r.size(); n != 0 {
					t.Errorf("%d records are left", n)
				}
			}
		}
	})
}

// A quorum raises the token of a lease, a caller demands a minimum.
func TestCounter_IsPushedByAQuorumAndByASecondAtMost(t *testing.T) {
	forEachCounting(t, func(t *testing.T, r *rows, d *roomdriver.Driver) {
		other := request("o")
		other.Key = "other"
		acquire(t, d, other, driver.Granted) // seeds the counter
		for i, row := range []struct {
			ahead  time.Duration
			raised bool
			kept   int
			pushed time.Duration
		}{
			{time.Millisecond, false, 0, 0}, // the clock passes it
			{time.Second / 4, false, 1, 0},
			{time.Second / 2, true, 1, time.Second / 2}, // the record of k is from the row before
			{time.Hour, true, 2, time.Second / 2},
		} {
			req, want := request("a"), r.now().Add(row.ahead).UnixMicro()+1
			if req.Key = fmt.Sprint("k", i); !row.raised {
				req.MinToken = want - 1
			}
			token := acquire(t, d, req, driver.Granted).Token
			if row.raised {
				d.Renew(t.Context(), []driver.Ref{{Key: req.Key, ID: "a", TTL: time.Minute, Token: want}}, func(_ int, reply driver.Reply, err error) { token = reply.Token })
			}
			if token != want {
				t.Errorf("%v: token %d, want %d", row.ahead, token, want)
			}
			time.Sleep(2 * time.Millisecond) // virtual: the clock passes a token that is 1 ms ahead
			release(t, d, driver.Ref{Key: req.Key, ID: "a"}, driver.Released)
			if n := r.size() - 1; n != row.kept {
				t.Errorf("%v: %d records are left for their tokens, want %d", row.ahead, n, row.kept)
			}
			if reply := acquire(t, d, req, driver.Granted); reply.Token <= want {
				t.Errorf("%v: token %d follows %d", row.ahead, reply.Token, want)
			}
			release(t, d, driver.Ref{Key: req.Key, ID: "a"}, driver.Released)
			if ahead := time.UnixMicro(r.counter).Sub(r.now()); ahead > row.pushed+time.Millisecond {
				t.Errorf("%v: the counter is %v ahead of the clock", row.ahead, ahead)
			}
		}
	})
}

// A hand-over to several readers takes several tokens.
func TestCounter_PassesTheTokensOfAHandOver(t *testing.T) {
	forEachCounting(t, func(t *testing.T, r *rows, d *roomdriver.Driver) {
		sub := watch(t, d, func(driver.Hint) {})
		acquire(t, d, request("w"), driver.Granted)
		readers := []string{"r1", "r2", "r3"}
		for _, id := range readers {
			req := shared(id)
			req.TicketTTL, req.HintAddress = time.Minute, sub.Address()
			acquire(t, d, req, driver.Queued)
		}
		release(t, d, driver.Ref{Key: "k", ID: "w"}, driver.Released)
		last := int64(0)
		for _, id := range readers {
			reply := acquire(t, d, shared(id), driver.Granted)
			if reply.Token <= last {
				t.Errorf("token %d follows %d", reply.Token, last)
			}
			last = reply.Token
			release(t, d, driver.Ref{Key: "k", ID: id}, driver.Released)
		}
		if n := r.size(); n != 0 {
			t.Errorf("%d records are left", n)
		}
		r.skew = -time.Hour
		if reply := acquire(t, d, request("w"), driver.Granted); reply.Token <= last {
			t.Errorf("token %d follows %d", reply.Token, last)
		}
	})
}

// A renewal of many tickets makes no tokens: the table gives one to a transaction of one item.
func TestCounter_HandOverByARenewalOfManyTicketsIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRows()
		d := open(t, &ledger{rows: r, counts: true})
		refs := make([]driver.Ref, 2)
		for i, key := range []string{"k", "l"} {
			holder, waiter := request("a"), shared("b")
			holder.Key, waiter.Key = key, key
			holder.TTL, waiter.TicketTTL = time.Second, time.Minute
			acquire(t, d, holder, driver.Granted)
			acquire(t, d, waiter, driver.Queued)
			refs[i] = driver.Ref{Key: key, ID: "b", TTL: time.Minute, TicketTTL: time.Minute}
		}
		time.Sleep(2 * time.Second)
		before := r.counter
		d.Renew(t.Context(), refs, func(i int, reply driver.Reply, err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if err != nil || reply.State != driver.Granted || reply.Token <= before || reply.Token > r.counter {
				t.Errorf("%+v, %v; want a token above %d, at most %d", reply, err, before, r.counter)
			}
		})
	})
}

// gated is a table with a Read that waits for the gate, if there is one.
type gated struct {
	exchanging
	gate *chan struct{}
}

func (t gated) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	if *t.gate != nil {
		<-*t.gate
	}
	return t.exchanging.Read(ctx, key)
}

// Calls of one process are made together while another process has used the lock, so that the
// process does not have the last token.
func TestCounter_CallsThatAreMadeTogetherTakeTheirTokenFromIt(t *testing.T) {
	for name, row := range map[string]struct {
		held  bool
		calls []string // ids: an acquire, or with "-" a release
	}{
		"a lock that is not left held":    {false, []string{"a", "-a"}},
		"a lock that is given and left":   {true, []string{"-h", "a", "-a"}},
		"a lock that another asks for":    {false, []string{"a", "b"}},
		"a lock that is released and had": {true, []string{"-h", "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var gate chan struct{}
				table := gated{exchanging{&ledger{rows: newRows(), counts: true}}, &gate}
				d, other := open(t, table), open(t, table)
				acquire(t, d, request("x"), driver.Granted)
				release(t, d, driver.Ref{Key: "k", ID: "x"}, driver.Released)
				last := int64(0)
				for range 5 {
					last = acquire(t, other, request("y"), driver.Granted).Token
					release(t, other, driver.Ref{Key: "k", ID: "y"}, driver.Released)
				}
				if row.held {
					last = acquire(t, other, request("h"), driver.Granted).Token
				}
				gate = make(chan struct{})
				var calls ordered
				calls.begin(func() { _, _ = d.Release(t.Context(), driver.Ref{Key: "k", ID: "nobody"}) })
				var mu sync.Mutex
				replies := make(map[string]driver.Reply)
				for _, call := range row.calls {
					calls.begin(func() {
						ask := func() (driver.Reply, error) { return d.Acquire(t.Context(), request(call)) }
						if id, leaves := strings.CutPrefix(call, "-"); leaves {
							ask = func() (driver.Reply, error) { return d.Release(t.Context(), driver.Ref{Key: "k", ID: id}) }
						}
						reply, err := ask()
						mu.Lock()
						defer mu.Unlock()
						if replies[call] = reply; err != nil {
							t.Errorf("%s: %v", call, err)
						}
					})
				}
				close(gate)
				calls.Wait()
				got := replies["a"]
				if got.State != driver.Granted || got.Token <= last {
					t.Errorf("%+v after the token %d", got, last)
				}
				if busy, ok := replies["b"]; ok && (len(busy.Holders) != 1 || busy.Holders[0].Token != got.Token) {
					t.Errorf("%+v; want the token %d", busy.Holders, got.Token)
				}
			})
		})
	}
}

// The lease lives for longer than a token is remembered without a counter.
func TestCounter_RecordOfALongLeaseEndsWithItsDelay(t *testing.T) {
	forEachCounting(t, func(t *testing.T, r *rows, d *roomdriver.Driver) {
		other := open(t, exchanging{&ledger{rows: r, counts: true}})
		long := request("a")
		long.TTL = 3 * time.Hour
		acquire(t, d, long, driver.Granted)
		release(t, other, driver.Ref{Key: "k", ID: "a", KeepClosed: time.Second}, driver.Released)
		if end, _, err := roomdriver.End(r.records["k"]); err != nil || end.Sub(r.now()) > 2*time.Second {
			t.Errorf("it ends in %v, %v", end.Sub(r.now()), err)
		}
	})
}

// The longest memory of the processes counts.
func TestMemory_TokensRiseAlthoughTheClockIsSteppedBack(t *testing.T) {
	for _, options := range [][]roomdriver.Option{nil, {roomdriver.WithMemory(0)}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRows()
			first, second := open(t, r, options...), open(t, r)
			token := acquire(t, first, request("a"), driver.Granted).Token
			release(t, second, driver.Ref{Key: "k", ID: "a"}, driver.Released)
			time.Sleep(50 * time.Minute)
			r.skew = -55 * time.Minute
			if got := acquire(t, second, request("b"), driver.Granted).Token; got <= token {
				t.Errorf("token %d follows %d", got, token)
			}
		})
	}
}
