package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/fence"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// TestPostgres_UnderFaults plays a transaction with faults at each of its steps. An unknown
// outcome is reported as neither stale nor repeatable; the fence and the work are done
// together or not at all; and the same claim may come again.
func TestPostgres_UnderFaults(t *testing.T) {
	t.Parallel()
	s := postgrestest.Shared(t)
	proxy := s.Proxy(t)
	u, err := url.Parse(s.Database(t))
	check(t, err)
	clean := openPostgres(t, u.String())
	if _, err := clean.ExecContext(t.Context(), `CREATE TABLE work (resource text, token bigint)`); err != nil {
		t.Fatal(err)
	}
	through, err := url.Parse(proxy.URL())
	check(t, err)
	u.Host = through.Host
	db := openPostgres(t, u.String()+"&default_query_exec_mode=exec")
	const before, raised, committed = "UPDATE", "work", "commit"
	cut := func(at func(string) *tcpproxy.Cut, text string) func(context.CancelFunc) {
		return func(context.CancelFunc) { at(text) }
	}
	for _, c := range []struct {
		fault   string
		begin   func(end context.CancelFunc)
		unknown bool // whether it took effect
	}{
		{"request lost", cut(proxy.CutBefore, before), false},
		{"answer lost", cut(proxy.CutAfter, before), false},
		{"work lost", cut(proxy.CutBefore, raised), false},
		{"answer to the work lost", cut(proxy.CutAfter, raised), false},
		{"commit lost", cut(proxy.CutBefore, committed), true},
		{"answer to the commit lost", cut(proxy.CutAfter, committed), true},
		{"context ended before", func(end context.CancelFunc) { end() }, false},
		{"server silent", func(end context.CancelFunc) {
			proxy.Mute()
			time.AfterFunc(200*time.Millisecond, end)
		}, true},
	} {
		t.Run(c.fault, func(t *testing.T) {
			count := func() (n int) {
				t.Helper()
				check(t, clean.QueryRowContext(t.Context(), `SELECT count(*) FROM work WHERE resource = $1`, c.fault).Scan(&n))
				return n
			}
			work := func(db *sql.DB, ctx context.Context, token int64) error {
				return dollar.Do(ctx, db, c.fault, by(token, "a"), func(tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, `INSERT INTO work VALUES ($1, $2)`, c.fault, token)
					return err
				})
			}
			check(t, work(clean, t.Context(), 1))
			ctx, end := context.WithCancel(t.Context())
			defer end()
			c.begin(end)
			err := work(db, ctx, 2)
			proxy.Unmute()
			if err == nil || errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrRetry) {
				t.Errorf("%v, want an error that is neither stale nor to be repeated", err)
			}
			done := count() == 2
			if done && !c.unknown {
				t.Error("it has taken effect")
			}
			// With the work the fence is raised, and without it it is not.
			if older := work(clean, t.Context(), 1); errors.Is(older, fence.ErrStale) != done {
				t.Errorf("the work is done: %v; the claim before it: %v", done, older)
			}
			if err := work(db, t.Context(), 2); err != nil {
				t.Errorf("the same claim comes again: %v", err)
			}
			wantStale(t, work(db, t.Context(), 1), by(2, "a"))
		})
	}
}

// TestRedis_UnderFaults plays a script with faults. An unknown outcome is not reported as
// stale, the fence and the write are done together or not at all, and the same claim may come
// again.
func TestRedis_UnderFaults(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := respproxy.Start(t, server.Addr())
	clean := fenced(server.Client())
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1, ReadTimeout: 300 * time.Millisecond, ContextTimeoutEnabled: true})
	defer rdb.Close()
	patient := redis.NewClient(&redis.Options{Addr: proxy.Addr(), MaxRetries: -1})
	defer patient.Close()
	r, again := fenced(rdb), fenced(patient)
	for _, c := range []struct {
		fault  string
		action respproxy.Action
		done   bool
	}{
		{"request lost", respproxy.DropRequest, false},
		{"answer lost", respproxy.DropReply, true},
		{"connection lost before", respproxy.Cut, false},
		{"connection lost after", respproxy.CutAfterForward, true},
	} {
		t.Run(c.fault, func(t *testing.T) {
			do := func(r fence.Redis, ctx context.Context, token int64, value string) error {
				_, err := r.Do(ctx, c.fault, by(token, "a"), write, []string{"value"}, value)
				return err
			}
			check(t, do(clean, t.Context(), 1, "first"))
			rule := proxy.Add(c.action, 1, respproxy.Command("EVAL"))
			if err := do(r, t.Context(), 2, "second"); err == nil || errors.Is(err, fence.ErrStale) {
				t.Errorf("%v, want an error that is not stale", err)
			}
			rule.WaitFired(t, 1)
			want := "first"
			if c.done {
				want = "second"
			}
			if got := server.Client().Get(t.Context(), "value").Val(); got != want {
				t.Errorf("the value is %q, want %q", got, want)
			}
			if older := do(clean, t.Context(), 1, want); errors.Is(older, fence.ErrStale) != c.done {
				t.Errorf("the claim before: %v", older)
			}
			if err := do(again, t.Context(), 2, "again"); err != nil {
				t.Errorf("the same claim comes again: %v", err)
			}
			wantStale(t, do(again, t.Context(), 1, "stale"), by(2, "a"))
		})
	}
}
