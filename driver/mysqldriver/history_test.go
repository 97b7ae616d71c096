package mysqldriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/mysqldriver/internal/mysqltest"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/live"
)

// records keeps a history in memory. The clock is the monotonic one of this process.
type records struct {
	mu    sync.Mutex
	start time.Time
	all   []history.Record
}

func (r *records) add(rec history.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, rec)
}

func (r *records) now() int64 { return time.Since(r.start).Nanoseconds() }

// more waits until locks have been granted n more times.
func (r *records) more(t *testing.T, n int) {
	t.Helper()
	grants := func() (n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, rec := range r.all {
			if rec.What == history.Got {
				n++
			}
		}
		return n
	}
	before := grants()
	eventually(t, func() bool { return grants() >= before+n })
}

const chaosTTL = 2 * time.Second

// work takes a lock and gives it back until ctx ends.
func (r *records) work(ctx context.Context, url, proc string) error {
	d, err := Open(url)
	if err != nil {
		return err
	}
	client, err := leasehold.New(d)
	if err != nil {
		return err
	}
	defer client.Close()
	for n := 0; ctx.Err() == nil; n++ {
		attempt := fmt.Sprint(proc, ".", n)
		base := history.Record{Proc: proc, Attempt: attempt}
		ask := base
		ask.At, ask.What, ask.Key, ask.Mode, ask.TTL = r.now(), history.Ask, "k", history.Exclusive, chaosTTL.Nanoseconds()
		ask.Wait, ask.Undo = (5 * time.Second).Nanoseconds(), (10 * time.Second).Nanoseconds()
		r.add(ask)
		lease, err := client.Mutex("k", leasehold.WithTTL(chaosTTL), leasehold.WithName(attempt), leasehold.WithMaxWait(5*time.Second)).Lock(ctx)
		end := base
		if err != nil {
			end.At, end.What, end.Outcome, end.Note = r.now(), history.None, outcomeOf(err), err.Error()
			r.add(end)
			continue
		}
		got := base
		got.At, got.What, got.Lease, got.Token = r.now(), history.Got, lease.ID(), lease.Token()
		got.Live = lease.Context().Err() == nil
		r.add(got)
		for range 1 + rand.IntN(4) {
			live := base
			live.At, live.What = r.now(), history.Live
			if lease.Context().Err() != nil {
				break
			}
			r.add(live)
			time.Sleep(rand.N(10 * time.Millisecond)) // the work under the lock
		}
		out := base
		out.At, out.What = r.now(), history.Release
		r.add(out)
		err = lease.Release()
		end.At, end.What, end.Outcome = r.now(), history.Released, history.OK
		if err != nil {
			end.Outcome, end.Note = outcomeOf(err), err.Error()
		}
		r.add(end)
	}
	return nil
}

func outcomeOf(err error) string {
	switch {
	case errors.Is(err, leasehold.ErrLost):
		return history.Lost
	case errors.Is(err, leasehold.ErrUnknown):
		return history.Unknown
	case errors.Is(err, leasehold.ErrHeld):
		return history.Held
	case errors.Is(err, context.Canceled):
		return history.Cancelled
	}
	return history.Unavailable
}

// TestHistory_FaultsNeverMakeTwoHoldersOrALesserToken lets clients use one lock while their
// connections are cut, and the server is killed and stopped.
func TestHistory_FaultsNeverMakeTwoHoldersOrALesserToken(t *testing.T) {
	live.Test(t)
	server := mysqltest.Start(t, "--innodb-flush-log-at-trx-commit=1")
	noError(t, warm(t, openURL(t, server.URL()+"create=true")).Close())
	proxy := server.Proxy(t)
	r := &records{start: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if err := r.work(ctx, proxy.URL()+"timeout=500ms&poll=5ms", fmt.Sprint("p", i)); err != nil {
				t.Error(err)
			}
		})
	}
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		for range 3 {
			r.more(t, 2)
			fault := history.Record{What: history.Fault, Note: "cut", Since: r.now()}
			switch rand.IntN(3) {
			case 0:
				proxy.CutAll()
			case 1:
				<-proxy.CutAfter(update).Fired()
			case 2:
				<-proxy.CutBefore(update).Fired()
			}
			fault.At = r.now()
			r.add(fault)
		}
		r.more(t, 2)
		fault := history.Record{What: history.Fault, Note: "kill", Since: r.now()}
		if round%2 == 0 {
			server.Kill(t)
			server.Restart(t)
		} else {
			server.Stop(t)
			time.Sleep(700 * time.Millisecond) // longer than the timeout of a call
			server.Cont(t)
		}
		fault.At = r.now()
		r.add(fault)
	}
	r.more(t, 2)
	cancel()
	wg.Wait()
	verdict := checker.Judge(history.Rules{Tokens: true}, r.all)
	t.Log(verdict)
	if len(verdict.Rules()) > 0 {
		t.Error("a promise was broken")
	}
}

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote counts in one record through a proxy that
// cuts connections. Each update that was certain counts, each that was definite does not.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	d, proxy := newStoreBehind(t)
	const workers, each = 6, 20
	var mu sync.Mutex
	var sure, unknown, definite []string
	var wg sync.WaitGroup
	for w := range workers {
		one := openURL(t, proxy.URL())
		wg.Go(func() {
			for n := range each {
				switch rand.IntN(8) {
				case 0:
					proxy.CutAfter(update)
				case 1:
					proxy.CutBefore(update)
				}
				mark := fmt.Sprintf("%d.%d ", w, n)
				err := one.table.Update(t.Context(), "count", func(record []byte, _ time.Time) ([]byte, error) {
					if record == nil {
						record = append([]byte{1, 0x7f}, make([]byte, 7)...)
					}
					return append(slices.Clone(record), mark...), nil
				})
				mu.Lock()
				switch {
				case err == nil:
					sure = append(sure, mark)
				case errors.Is(err, driver.ErrUnavailable):
					definite = append(definite, mark)
				default:
					unknown = append(unknown, mark)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	var record []byte
	eventually(t, func() (ok bool) {
		var err error
		record, _, err = roomdriver.Reader(d.table).Read(t.Context(), "count")
		return err == nil
	})
	has := make(map[string]int)
	for i := 9; i < len(record); {
		n := slices.Index(record[i:], ' ') + 1
		has[string(record[i:i+n])]++
		i += n
	}
	for _, mark := range sure {
		if has[mark] != 1 {
			t.Errorf("%s is certain and there %d times", mark, has[mark])
		}
	}
	for _, mark := range definite {
		if has[mark] != 0 {
			t.Errorf("%s is definite and there %d times", mark, has[mark])
		}
	}
	for _, mark := range unknown {
		if has[mark] > 1 {
			t.Errorf("%s is there %d times", mark, has[mark])
		}
	}
	t.Logf("%d sure, %d unknown, %d definite", len(sure), len(unknown), len(definite))
	if len(unknown) == 0 || len(sure) == 0 {
		t.Error("too little happened")
	}
}
