//go:build linux

package matrix_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/internal/test/address"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

var only = flag.String("matrix.play", "", "run only the plays on PostgreSQL with this text in their names")

// The number of plays at a time, and the number of plays of which one is drawn.
const (
	atOnce = 100
	oneOf  = 3
)

// budget is the time after which plays no longer begin, nor are repeated.
const budget = 75 * time.Second

// tries bounds how often a play is repeated because the machine stood still.
const tries = 3

// TestMatrix_OnPostgres calls every entry of the library under the faults that are possible
// between a client and a PostgreSQL server. A proxy that understands the protocol applies them in
// real time, and the checks are as in a bubble, with some seconds more for bounds of time. A
// play during which the machine stood still is repeated if its errors may result from that: all
// errors but two holders and a token that does not rise.
func TestMatrix_OnPostgres(t *testing.T) {
	skip.Nightly(t, "it takes more than a minute of real time")
	skip.Racing(t, "it is too slow")
	t.Logf("one play of each cell, and one cell of %d, by lot: -matrix.seed=%d", oneOf, *seed)
	s := &scene{t: t, stalls: new(stalls), begin: time.Now()}
	stage := s.open()
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() { s.stalls.watch(stage.pool, ended) })
	all := drawn()
	var plays sync.WaitGroup
	next := make(chan part)
	for i := range atOnce {
		plays.Go(func() {
			time.Sleep(time.Duration(i) * 50 * time.Millisecond) // they do not all connect at one moment
			for p := range next {
				s.play(stage, p)
			}
		})
	}
	gone := make(chan struct{})
	if *only == "" {
		plays.Go(func() { s.restart(gone) })
		<-gone // it has all its clients connect at the same time
	}
	begun := 0
	for _, p := range all {
		if strings.Contains(p.String(), *only) && time.Since(s.begin) < budget {
			s.stalls.settle()
			next <- p
			begun++
		}
	}
	close(next)
	plays.Wait()
	close(ended)
	watching.Wait()
	t.Logf("%d plays of %d, and one of each entry around a restart, in %v; %d were repeated, since the machine stood still, and %d could not be judged; %d met no fault",
		begun, len(all), time.Since(s.begin).Round(time.Second), s.repeated.Load(), s.unjudged.Load(), s.unmet.Load())
	if judged := begun - int(s.unjudged.Load()); judged < 50 && *only == "" {
		t.Errorf("only %d plays could be judged: the machine stood still", judged)
	}
}

// part is a play to come.
type part struct {
	*entry
	fault string
	disturbance
	n int
}

func (p *part) String() string { return fmt.Sprintf("%s/%s/%+v", p.name(), p.fault, p.disturbance) }

// players are the entries of the library that are played here.
func players() []*entry {
	return slices.DeleteFunc(append(locks(), others()...), func(e *entry) bool { return slices.Contains(e.notOn, "postgres") })
}

// happens reports whether a disturbance can happen between a client and a PostgreSQL server: no
// request is sent twice there, and no answer is timed to the microsecond.
func happens(d disturbance) bool {
	return !d.away && !d.later && !slices.Contains([]fate{doubled, onEdge, beforeEdge, only503}, d.fate)
}

// drawn returns the plays, the longest first.
func drawn() (all []part) {
	rng := rand.New(rand.NewPCG(*seed, 3)) //nolint:gosec // to be repeated
	for _, e := range players() {
		for _, f := range faults {
			plays := slices.DeleteFunc(slices.Clone(f.plays), func(d disturbance) bool { return !happens(d) || d.fate == restarts })
			if len(plays) == 0 || e.ignores(&f) || rng.IntN(oneOf) > 0 && *only == "" {
				continue
			}
			d := plays[rng.IntN(len(plays))]
			if e.silent(d) {
				continue
			}
			all = append(all, part{e, f.name, d, len(all)})
		}
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	slices.SortStableFunc(all, func(a, b part) int { return int(b.lasts+b.lasts2) - int(a.lasts+a.lasts2) })
	return all
}

// scene is the state that all plays share.
type scene struct {
	t      *testing.T
	stalls *stalls
	begin  time.Time

	repeated, unjudged atomic.Int64
	unmet              atomic.Int64 // met no fault
}

// stage is a server, with its clients that meet no faults.
type stage struct {
	server *postgrestest.Server
	host   string
	pool   *pgxpool.Pool
	quiet  *postgresdriver.Driver // of all second clients
	look   *postgresdriver.Driver
}

// open starts a server with room for all connections that the clients of all plays may have:
// a client has twelve, and one that listens.
func (s *scene) open() *stage {
	t := s.t
	t.Helper()
	st := &stage{server: postgrestest.Start(t, "synchronous_commit=on", fmt.Sprintf("max_connections=%d", 13*(atOnce+10)))}
	u, err := url.Parse(st.server.URL())
	if err != nil {
		t.Fatal(err)
	}
	st.host = u.Host
	if st.pool, err = pgxpool.New(t.Context(), st.server.URL()); err != nil {
		t.Fatal(err)
	}
	for _, to := range []**postgresdriver.Driver{&st.quiet, &st.look} {
		if *to, err = postgresdriver.Open(st.server.URL() + "&create=true&timeout=10s"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := st.quiet.Inspect(t.Context(), key); err != nil { // it creates the table
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = st.quiet.Close(), st.look.Close()
		st.pool.Close()
	})
	return st
}

// play plays a part, and again if the machine stood still.
func (s *scene) play(st *stage, p part) {
	for i := range tries {
		w, err := st.world(fmt.Sprintf("p%d.%d/", p.n, i), nil, false)
		if err != nil {
			s.t.Error(err)
			return
		}
		begin := time.Now()
		p.long = p.long && !p.stays
		c := act(w, p.entry, p.disturbance)
		if s.judges(&p, c, begin) {
			if len(c.wrongs) == 0 && !c.hasMet() {
				s.t.Logf("it has met no fault, and proves no property: %s", &p)
				s.unmet.Add(1)
			}
			return
		}
		s.repeated.Add(1)
		if time.Since(s.begin) > budget {
			break
		}
	}
	s.unjudged.Add(1)
}

// judges reports the errors of a play. It returns false if they may result from a machine that stood still.
func (s *scene) judges(p *part, c *cast, begin time.Time) bool {
	stalled := s.stalls.since(begin)
	switch {
	case len(c.wrongs) == 0:
	case c.hard || stalled == 0 && !c.unready:
		s.t.Errorf("after %v: %s:\n%s", time.Since(s.begin).Round(time.Second), p, strings.Join(c.wrongs, "\n"))
	default:
		s.t.Logf("the machine stood still for %v, and %s: %s", stalled, p, strings.Join(c.wrongs, "; "))
		return false
	}
	return true
}

// restart exposes all entries to a restart of one server, at the same time: half of the requests
// are on their way when it is killed, and the other half are sent when it is gone. Leases last
// for a minute, so that no lease may be lost.
func (s *scene) restart(gone chan<- struct{}) {
	st := s.open()
	all := slices.DeleteFunc(players(), func(e *entry) bool { return e.inside })
	g := newGate(len(all))
	var plays sync.WaitGroup
	for i, e := range all {
		plays.Go(func() {
			w, err := st.world(fmt.Sprintf("p%d/", i), g, i%2 == 0)
			if err != nil {
				s.t.Error(err)
				return
			}
			p := part{e, "server restarted", disturbance{fate: restarts, long: !e.stays}, i}
			begin := time.Now()
			c := act(w, e, p.disturbance)
			if c.unready {
				g.arrived <- struct{}{} // the remaining plays do not wait for it
			}
			if !s.judges(&p, c, begin) {
				s.unjudged.Add(1)
			}
		})
	}
	late := time.After(time.Minute)
	for i := range all {
		select {
		case <-g.arrived:
			continue
		case <-late:
			s.t.Errorf("%d of %d entries have asked for something", i, len(all))
		}
		break
	}
	close(g.open)
	time.Sleep(time.Millisecond)
	st.server.Kill(s.t)
	close(g.killed)
	close(gone)
	st.server.Restart(s.t)
	plays.Wait()
}

// world is two clients of the server, of which the first has the proxy before it.
func (st *stage) world(prefix string, g *gate, early bool) (*world, error) {
	l, err := address.Listen()
	if err != nil {
		return nil, err
	}
	own := &archive{stage: st, prefix: prefix}
	w := &world{weather: new(weather), tables: []shelf{own}, slack: 3 * time.Second}
	way := &wire{weather: w.weather, table: own, listener: l, upstream: st.host, gate: g, kill: own.kill, early: early, conns: make(map[net.Conn]bool)}
	way.running.Go(way.serve)
	direct := st.server.URL()
	address := strings.Replace(direct, st.host, l.Addr().String(), 1)
	a, err := postgresdriver.Open(address, postgresdriver.WithListen(direct))
	if err != nil {
		way.stop()
		return nil, err
	}
	w.drivers = [2]driver.Driver{corner{a, prefix}, corner{st.quiet, prefix}}
	w.stop = func() {
		_ = a.Close()
		way.stop()
	}
	return w, nil
}

// archive is the records of one play.
type archive struct {
	*stage
	prefix string

	mu   sync.Mutex
	kept []record
}

type record struct {
	Key    string
	Record []byte
	Ends   int64
}

func (r *archive) join() store { return corner{r.look, r.prefix} }

// ours is the condition for them: the key of a note begins with that of a lock.
const ours = `position($1 IN key) > 0`

func (r *archive) Keep() {
	r.mu.Lock()
	defer r.mu.Unlock()
	got, err := r.pool.Query(context.Background(), `SELECT key, record, ends FROM leasehold WHERE `+ours, r.prefix)
	if err == nil {
		r.kept, err = pgx.CollectRows(got, pgx.RowToStructByPos[record])
	}
	if err != nil {
		panic(err)
	}
}

func (r *archive) Forget() { r.replace(nil) }

func (r *archive) GoBack() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.replace(r.kept)
}

// replace replaces the rows of the server, as a loss of acknowledged data does.
func (r *archive) replace(by []record) {
	var err error
	for range 50 {
		err = pgx.BeginFunc(context.Background(), r.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(context.Background(), `DELETE FROM leasehold WHERE `+ours, r.prefix); err != nil {
				return err
			}
			for _, row := range by {
				if _, err := tx.Exec(context.Background(), `INSERT INTO leasehold VALUES ($1, $2, $3)`, row.Key, row.Record, row.Ends); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			return
		}
	}
	panic(err)
}

// kill ends a session, and returns when it has ended.
func (r *archive) kill(pid uint32) {
	_, _ = r.pool.Exec(context.Background(), `SELECT pg_terminate_backend($1::bigint::int, 5000)`, int64(pid))
}

// corner is the part of a store under a prefix. Its Close has no effect.
type corner struct {
	*postgresdriver.Driver
	prefix string
}

func (c corner) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	req.Key = c.prefix + req.Key
	return c.Driver.Acquire(ctx, req)
}

func (c corner) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	refs = slices.Clone(refs)
	for i := range refs {
		refs[i].Key = c.prefix + refs[i].Key
	}
	c.Driver.Renew(ctx, refs, each)
}

func (c corner) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	ref.Key = c.prefix + ref.Key
	return c.Driver.Release(ctx, ref)
}

func (c corner) Break(ctx context.Context, key, id, reason string) (driver.Reply, error) {
	return c.Driver.Break(ctx, c.prefix+key, id, reason)
}

func (c corner) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	snap, err := c.Driver.Inspect(ctx, c.prefix+key)
	snap.Key = key
	return snap, err
}

func (c corner) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	snap, err := c.Driver.Glance(ctx, c.prefix+key)
	snap.Key = key
	return snap, err
}

func (c corner) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	keys, next, err := c.Driver.List(ctx, c.prefix+prefix, cursor)
	for i := range keys {
		keys[i] = strings.TrimPrefix(keys[i], c.prefix)
	}
	return keys, next, err
}

func (c corner) Close() error { return nil }

// stalls records the times at which the machine stood still for long enough to change the result
// of a play.
type stalls struct {
	mu    sync.Mutex
	all   []stall
	began time.Time // the start of the present measurement
	last  time.Time // when the machine was last quick
}

type stall struct {
	at   time.Time
	long time.Duration
}

// stillness is the length of a pause of the machine after which a play is repeated: a lease lasts
// for 3 s, and is renewed each second.
const stillness = 500 * time.Millisecond

// watch measures pauses of the machine, and the time to connect to the server and to commit,
// until the end.
func (s *stalls) watch(pool *pgxpool.Pool, end <-chan struct{}) {
	for {
		begin := time.Now()
		s.mu.Lock()
		s.began = begin
		s.mu.Unlock()
		select {
		case <-end:
			return
		case <-time.After(100 * time.Millisecond):
		}
		if conn, err := pgx.ConnectConfig(context.Background(), pool.Config().ConnConfig); err == nil {
			// It has to commit, which a disk that stalls holds up.
			_, _ = conn.Exec(context.Background(), `SELECT pg_current_xact_id()`)
			_ = conn.Close(context.Background())
		}
		took := time.Since(begin)
		s.mu.Lock()
		if took > stillness {
			s.all = append(s.all, stall{time.Now(), took})
		}
		if took < stillness/2 {
			s.last = time.Now()
		}
		s.mu.Unlock()
	}
}

// settle waits for a moment in which the machine is quick, some seconds at most.
func (s *stalls) settle() {
	for range 50 {
		s.mu.Lock()
		quick := time.Since(s.last) < stillness
		s.mu.Unlock()
		if quick {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// since returns the longest time for which the machine stood still since begin, or 0. It counts
// the present measurement, too: a play may end before the measurement of the stall that delays
// both.
func (s *stalls) since(begin time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took := time.Since(s.began); took > stillness && !s.began.IsZero() {
		longest = took
	}
	for _, one := range s.all {
		if one.at.After(begin) {
			longest = max(longest, one.long)
		}
	}
	return longest
}
