package quorumdriver_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

var scheduleSeed = flag.Uint64("schedule.seed", 0, "play only the schedule of this seed")

// TestQuorum_KeepsItsPromisesUnderRandomSchedules plays random schedules of node
// kills, restarts (empty and not), pauses, cuts and delays over five nodes, of
// which at most two have a fault at a time, in virtual time. No two live leases may
// exclude each other, tokens rise, and every wait ends.
func TestQuorum_KeepsItsPromisesUnderRandomSchedules(t *testing.T) {
	t.Parallel()
	if *scheduleSeed != 0 {
		if violations := playSchedule(t, *scheduleSeed); violations != "" {
			t.Fatal(violations)
		}
		return
	}
	n := 1000
	if testing.Short() {
		n /= 25
	}
	for violations := range schedules(t, n) {
		if violations != "" {
			t.Fatal(violations)
		}
	}
}

// The schedules find known faults, which proves that they test something.
func TestQuorum_TheRandomSchedulesFindWhatIsWrong(t *testing.T) {
	skip.Nightly(t, "it tests the schedules, of which hundreds may be needed")
	for name, c := range map[string]struct {
		with quorumdriver.Option
		want string
	}{
		"without the guard":    {quorumdriver.WithoutGuard(), "hold it at once"},
		"without a write-back": {quorumdriver.WithPlainMaximum(), "after token"},
	} {
		t.Run(name, func(t *testing.T) {
			const most = 2000
			n := 0
			for violations := range schedules(t, most, c.with) {
				if n++; strings.Contains(violations, c.want) {
					t.Logf("found by schedule %d", n)
					return
				}
			}
			t.Errorf("%d schedules have not found it", n)
		})
	}
}

// schedules plays up to n schedules and yields the violations of each; empty if there are none.
func schedules(t *testing.T, n int, opts ...quorumdriver.Option) iter.Seq[string] {
	return func(yield func(string) bool) {
		for range n {
			if !yield(playSchedule(t, rand.Uint64(), opts...)) {
				return
			}
		}
	}
}

// Bounds of the durations in a schedule.
const (
	longestLease = time.Second
	maxSkew      = 200 * time.Millisecond
	nodeTimeout  = 100 * time.Millisecond
)

// playSchedule plays the schedule of a seed.
func playSchedule(t *testing.T, seed uint64, opts ...quorumdriver.Option) (violations string) {
	t.Run(fmt.Sprint(seed), func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &schedule{T: t, seed: seed, nodes: servers(5), ill: make(map[int]bool), rnd: rand.New(rand.NewPCG(seed, 1))}
			s.opts = append([]quorumdriver.Option{
				quorumdriver.WithTimeout(nodeTimeout), quorumdriver.WithMaxTTL(longestLease), quorumdriver.WithMaxSkew(maxSkew),
			}, opts...)
			for _, node := range s.nodes {
				node.skew = s.upTo(maxSkew)
			}
			t.Cleanup(func() { time.Sleep(time.Minute) }) // until the last server has dropped the cancelled requests
			s.play()
			violations = s.verdict()
		})
	})
	return violations
}

// schedule is one random sequence of events.
type schedule struct {
	*testing.T
	seed  uint64
	opts  []quorumdriver.Option
	nodes []*server

	mu    sync.Mutex
	ill   map[int]bool // the nodes with a fault
	rnd   *rand.Rand
	log   []string
	wrong []string
	live  []*held
	token int64 // the greatest that was granted
}

// held is a lease that a worker has.
type held struct {
	*leasehold.Lease
	who  string
	read bool
}

func (s *schedule) play() {
	stop := make(chan struct{})
	var trouble, work sync.WaitGroup
	for range 2 { // at a time
		trouble.Go(func() { s.trouble(stop) })
	}
	for p := range 3 {
		c := clientOf(s, quorumOf(s, s.nodes, s.opts...))
		for w := range 1 + p%2 {
			work.Go(func() { s.work(c, fmt.Sprintf("%d.%d", p, w)) })
		}
	}
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		s.mu.Lock()
		s.violation("a worker still waits")
		s.mu.Unlock()
	}
	close(stop)
	trouble.Wait()
	<-done
}

// verdict returns the violations and the last events; empty if there are no violations.
func (s *schedule) verdict() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.wrong) == 0 {
		return ""
	}
	return fmt.Sprintf("%s\nthe last events:\n%s\nreplay with -run UnderRandomSchedules -schedule.seed=%d",
		strings.Join(s.wrong, "\n"), strings.Join(s.log[max(0, len(s.log)-200):], "\n"), s.seed)
}

func (s *schedule) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(format, args...)
}

// add adds to the log. The caller holds mu.
func (s *schedule) add(format string, args ...any) {
	s.log = append(s.log, time.Now().Format("05.000000 ")+fmt.Sprintf(format, args...))
}

// violation adds a violation. The caller holds mu.
func (s *schedule) violation(format string, args ...any) {
	s.add("WRONG: "+format, args...)
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

func (s *schedule) intn(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rnd.IntN(n)
}

func (s *schedule) between(a, b time.Duration) time.Duration {
	return a + time.Duration(s.intn(int((b-a)/time.Microsecond)))*time.Microsecond
}

// upTo returns a random duration of at most about d; short durations are more likely.
func (s *schedule) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := s.rnd.Float64()
	return time.Duration(float64(d)*part*part) + time.Microsecond
}

// trouble causes faults at one node after another.
func (s *schedule) trouble(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(s.upTo(500 * time.Millisecond)):
		}
		n := s.pick()
		s.suffer(n, s.upTo(time.Second))
		s.cure(n)
	}
}

// pick returns a node without a fault.
func (s *schedule) pick() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if n := s.rnd.IntN(len(s.nodes)); !s.ill[n] {
			s.ill[n] = true
			return n
		}
	}
}

func (s *schedule) cure(n int) {
	s.logf("node %d: well", n+1)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ill, n)
}

// suffer causes a fault at a node for d, and returns when the node has recovered.
func (s *schedule) suffer(n int, d time.Duration) {
	node := s.nodes[n]
	what, begin, end := "is killed", node.kill, func() { node.restart(false) }
	switch s.intn(7) {
	case 0, 1:
		what, end = "is killed, and empty afterwards", func() { node.restart(true); s.recover(n) }
	case 2:
	case 3:
		what, begin, end = "is stopped", node.stop, node.cont
	case 4:
		what, begin, end = "is cut off", func() { node.cutOff(true) }, func() { node.cutOff(false) }
	case 5:
		lose := func(lost bool) { node.set(func(s *server) { s.lost = lost }) }
		what, begin, end = "loses its answers", func() { lose(true) }, func() { lose(false) }
	default:
		what, begin, end = "is slow", func() { node.delay(d / 10) }, func() { node.delay(0) }
	}
	s.logf("node %d: %s for %v", n+1, what, d)
	begin()
	time.Sleep(d)
	end()
}

// recover waits until the quarantine of an empty node is over, if one begins.
func (s *schedule) recover(n int) {
	s.logf("node %d: restarted", n+1)
	for range 20 {
		if left, ok := s.nodes[n].marked(s); ok {
			time.Sleep(left)
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.logf("node %d: no process has marked it", n+1)
}

// work takes the lock a few times.
func (s *schedule) work(c *leasehold.Client, who string) {
	ctx := context.Background()
	for range 4 {
		ttl := s.between(50*time.Millisecond, longestLease)
		hold := s.between(0, time.Second)
		read := s.intn(4) == 0
		opts := []leasehold.Option{leasehold.WithTTL(ttl)}
		if s.intn(2) == 0 {
			opts = append(opts, leasehold.WithoutRenewal())
		}
		lock := c.RWMutex("k", opts...)
		take := lock.Lock
		if read {
			take = lock.RLock
		}
		s.logf("%s asks for %v, read %v", who, ttl, read)
		lease, err := s.insist(ctx, take)
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.violation("%s: %v", who, err)
			return
		}
		h := &held{lease, who, read}
		s.began(h)
		select {
		case <-lease.Context().Done():
		case <-time.After(hold):
		}
		s.ended(h)
	}
}

// insist asks again when too few nodes answer.
func (s *schedule) insist(ctx context.Context, take func(context.Context) (*leasehold.Lease, error)) (*leasehold.Lease, error) {
	for {
		lease, err := take(ctx)
		if !errors.Is(err, driver.ErrNoQuorum) {
			return lease, err
		}
		time.Sleep(s.between(time.Millisecond, 100*time.Millisecond))
	}
}

// began checks a new lease against the other live leases, unless it has ended already.
func (s *schedule) began(h *held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add("%s has token %d for %v, read %v", h.who, h.Token(), h.Remaining(), h.read)
	if h.Context().Err() != nil {
		return
	}
	for _, o := range s.live {
		if o.Context().Err() == nil && (!o.read || !h.read) {
			s.violation("%s and %s hold it at once", o.who, h.who)
		}
	}
	s.live = append(s.live, h)
	if !h.read && h.Token() <= s.token {
		s.violation("%s has token %d after token %d", h.who, h.Token(), s.token)
	}
	s.token = max(s.token, h.Token())
}

func (s *schedule) ended(h *held) {
	lost := h.Context().Err() != nil
	s.mu.Lock()
	s.live = slices.DeleteFunc(s.live, func(o *held) bool { return o == h })
	s.mu.Unlock()
	s.logf("%s ends it, lost %v: %v", h.who, lost, context.Cause(h.Context()))
	if err := h.Release(); err != nil {
		s.logf("%s releases: %v", h.who, err)
	}
	s.logf("%s has ended it", h.who)
}
