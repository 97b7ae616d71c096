package s3driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

// trouble makes a sixth of the requests about records fail in every way, and late requests arrive.
func trouble(s *fakes3.Server) func(*http.Request) fakes3.Fault {
	faults := []fakes3.Fault{fakes3.Cut, fakes3.Lose, fakes3.SlowDown, fakes3.Failed, fakes3.Conflict, fakes3.Late}
	return func(r *http.Request) fakes3.Fault {
		if rand.IntN(20) == 0 {
			go s.Arrive()
		}
		if rand.IntN(6) == 0 && (isRecord(r, http.MethodGet) || isRecord(r, http.MethodPut) || isRecord(r, http.MethodDelete)) {
			return faults[rand.IntN(len(faults))]
		}
		return fakes3.Answered
	}
}

// link is an update of a key: the record that it read and the record that it wrote. A missing record
// is "".
type link struct {
	key, before, after string
	sure               bool
}

// chain records updates.
type chain struct {
	mu    sync.Mutex
	links []link
	fails int
}

// work updates and removes records at random.
func (c *chain) work(ctx context.Context, table roomdriver.Table, name string) {
	for n := 0; ctx.Err() == nil; n++ {
		l := link{key: fmt.Sprint(rand.IntN(3))}
		err := table.Update(context.WithoutCancel(ctx), l.key, func(record []byte, _ time.Time) ([]byte, error) {
			if l.before, l.after = string(record), ""; rand.IntN(4) == 0 {
				return nil, nil
			}
			l.after = fmt.Sprint(name, ".", n)
			return []byte(l.after), nil
		})
		c.mu.Lock()
		if err != nil {
			c.fails++
		}
		if l.sure = err == nil; l.before != l.after && !errors.Is(err, driver.ErrUnavailable) {
			c.links = append(c.links, l)
		}
		c.mu.Unlock()
	}
}

// check reports updates that cannot have happened one after the other. Each record has at most one
// successor, and each record that was read was also written.
func (c *chain) check(t *testing.T) {
	t.Helper()
	written, read := make(map[link]bool), make(map[link]link)
	for _, l := range c.links {
		written[link{key: l.key, after: l.after}] = true
	}
	for _, l := range c.links {
		at := link{key: l.key, before: l.before}
		if l.before == "" {
			continue
		}
		if other, twice := read[at]; twice && l.sure && other.sure {
			t.Errorf("both %+v and %+v follow %q", other, l, l.before)
		}
		if l.sure || read[at] == (link{}) {
			read[at] = l
		}
		if !written[link{key: l.key, after: l.before}] {
			t.Errorf("%+v has read a record that was certainly not written", l)
		}
	}
}

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote plays several processes while requests and
// answers are lost.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	for name, lacks := range map[string]fakes3.Lacks{"full": fakes3.Complete, "no conditional deletes": fakes3.ConditionalDeletes} {
		t.Run(name, func(t *testing.T) {
			s := fakes3.New()
			s.Lack(lacks)
			c := new(chain)
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range 4 {
				b := warm(t, openAt(t, urlOf(t, s.Start(t, 0).URL, "&timeout=500ms"))).bucket
				all.Go(func() { c.work(ctx, roomdriver.FromSwapper(b), fmt.Sprint(i)) })
			}
			s.Inject(trouble(s))
			enough := func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.links) >= 400 && c.fails >= 40
			}
			for start := time.Now(); !enough() && time.Since(start) < time.Minute; {
				time.Sleep(10 * time.Millisecond)
			}
			cancel()
			all.Wait()
			if c.check(t); !enough() {
				t.Error("too little happened")
			}
		})
	}
}

func TestUpdate_TheChainFindsALostUpdate(t *testing.T) {
	for name, links := range map[string][]link{
		"lost":     {{"a", "", "1", true}, {"a", "1", "2", true}, {"a", "1", "3", true}},
		"reverted": {{"a", "", "1", true}, {"a", "2", "3", true}},
	} {
		inner := new(testing.T)
		if (&chain{links: links}).check(inner); !inner.Failed() {
			t.Errorf("%s: not found", name)
		}
	}
}

// notes is a history.
type notes struct {
	mu      sync.Mutex
	began   time.Time
	records []history.Record
	grants  int
}

func (n *notes) add(proc, attempt, what string, r history.Record) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Proc, r.Attempt, r.What, r.At = proc, attempt, what, n.now()
	n.records = append(n.records, r)
	if what == history.Got {
		n.grants++
	}
}

func (n *notes) now() int64 { return int64(time.Since(n.began)) + 1 }

// try tries to take a lock, holds it for a moment, and releases it.
func (n *notes) try(ctx context.Context, client *leasehold.Client, proc, attempt string) {
	const ttl = MinTTL
	n.add(proc, attempt, history.Ask, history.Record{Key: "k", Mode: history.Exclusive, TTL: int64(ttl), Undo: int64(2 * ttl)})
	lease, err := client.Mutex("k", leasehold.WithName(attempt), leasehold.WithTTL(ttl), leasehold.WithReleaseTimeout(2*ttl)).TryLock(ctx)
	if err != nil {
		r := history.Record{Outcome: history.Unavailable, Note: err.Error()}
		switch held := (*leasehold.HeldError)(nil); {
		case errors.As(err, &held):
			r = history.Record{Outcome: history.Held, Holder: held.Owner}
		case errors.Is(err, leasehold.ErrUnknown):
			r.Outcome = history.Unknown
		}
		n.add(proc, attempt, history.None, r)
		return
	}
	n.add(proc, attempt, history.Got, history.Record{Lease: lease.ID(), Token: lease.Token(), Live: lease.Context().Err() == nil})
	time.Sleep(rand.N(5 * time.Millisecond))
	if lease.Context().Err() == nil {
		n.add(proc, attempt, history.Live, history.Record{})
	}
	n.add(proc, attempt, history.Release, history.Record{})
	r := history.Record{Outcome: history.OK}
	if err := lease.Release(); err != nil {
		r = history.Record{Outcome: history.Lost, Note: err.Error()}
	}
	n.add(proc, attempt, history.Released, r)
}

// TestClients_KeepThePromisesDuringFaults plays clients of several servers with different clocks, while
// requests and answers are lost, and while all servers are silent for a second.
func TestClients_KeepThePromisesDuringFaults(t *testing.T) {
	s := fakes3.New()
	n := &notes{began: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 5 {
		d := warm(t, openAt(t, urlOf(t, s.Start(t, time.Duration(i)*skew/5).URL, "&timeout=300ms")))
		client, err := leasehold.New(d, leasehold.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		proc := fmt.Sprint("p", i)
		all.Go(func() {
			for try := 0; ctx.Err() == nil; try++ {
				n.try(ctx, client, proc, fmt.Sprint(proc, ".", try))
			}
			_ = client.Close() // the store may not answer
		})
	}
	grants := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.grants
	}
	await := func(most int) {
		for start := time.Now(); grants() < most && time.Since(start) < time.Minute; {
			time.Sleep(10 * time.Millisecond)
		}
	}
	since := n.now()
	s.Inject(trouble(s))
	await(20)
	s.Inject(func(*http.Request) fakes3.Fault { return fakes3.Hang })
	time.Sleep(time.Second) // every request hangs for as long
	s.Inject(trouble(s))
	await(40)
	s.Inject(nil)
	await(50)
	cancel()
	all.Wait()
	n.add("", "", history.Fault, history.Record{Since: since, Note: "trouble"})
	verdict := checker.Judge(history.Rules{Tokens: true}, n.records)
	for _, v := range verdict.Violations {
		t.Error(v)
	}
	if verdict.Grants < 50 || verdict.Refusals == 0 {
		t.Errorf("too little happened: %+v", verdict)
	}
	t.Logf("%d attempts, %d grants, %d refusals, %d unserved, %d losses", verdict.Attempts, verdict.Grants, verdict.Refusals, verdict.Unserved, verdict.Losses)
}
