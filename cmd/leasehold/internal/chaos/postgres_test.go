//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// TestChaos_OnPostgres uses a server that keeps all acknowledged changes. Sessions are killed,
// statements are cancelled, and the server is stopped and restarted: exclusion must hold
// without exception.
func TestChaos_OnPostgres(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, "synchronous_commit=on")
	proxy := server.Proxy(t)
	const options = "&create=true&timeout=1s"
	suffer(t, &chaos.Game{
		Label: "PostgreSQL", Rules: queue, Look: server.URL() + options,
		Stores: []string{proxy.URL() + options, proxy.URL() + options + "&default_query_exec_mode=exec", server.URL() + options},
		Havoc:  postgresHavoc(t, server, proxy), Observe: commits(server),
	})
}

// commits records slow commits of a server that no fault of the game has caused: if a
// hand-over is not confirmed within its window, a process loses its places in a queue.
func commits(server *postgrestest.Server) func(context.Context, func(history.Record)) {
	const change = `SELECT pg_logical_emit_message(true, '', '')` // in the log, and in no table
	var conn *pgx.Conn
	connected := func(ctx context.Context) bool {
		if conn != nil && !conn.IsClosed() {
			return true
		}
		var err error
		conn, err = pgx.Connect(ctx, server.URL())
		return err == nil
	}
	return func(ctx context.Context, note func(history.Record)) {
		slow(func(ctx context.Context) {
			if connected(ctx) {
				_, _ = conn.PgConn().Exec(ctx, change).ReadAll()
			}
		})(ctx, note)
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}
}

// TestChaos_OnPostgresThatForgets empties the server's table, so that exclusion cannot hold:
// tokens must still rise, and losses must be reported.
func TestChaos_OnPostgresThatForgets(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	const options = "&create=true&timeout=1s"
	empty := sqlHavoc(server, "TRUNCATE", `TRUNCATE leasehold`)
	empty.Forgets = history.ForgetsAll
	drop := sqlHavoc(server, "DROP TABLE", `DROP TABLE IF EXISTS leasehold`)
	drop.Forgets = history.ForgetsAll
	crash := revives("crash without synchronous_commit", history.ForgetsSome, func() { server.Kill(t) }, func() { server.Restart(t) })
	suffer(t, &chaos.Game{
		Label: "PostgreSQL that forgets", Rules: queue, Stores: []string{server.URL() + options},
		Havoc: []chaos.Havoc{empty, drop, crash},
	})
}

func postgresHavoc(t *testing.T, server *postgrestest.Server, proxy *postgrestest.Proxy) []chaos.Havoc {
	const others = ` FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`
	around := func(name string, cut func(text string) *tcpproxy.Cut) chaos.Havoc {
		return chaos.Havoc{Name: name, Do: func(*rand.Rand) error {
			select {
			case <-cut("RETURNING CASE").Fired():
			case <-time.After(ttl):
			}
			return nil
		}}
	}
	return []chaos.Havoc{
		lasts("stop the server", func() { server.Stop(t) }, func() { server.Cont(t) }),
		lasts("black hole", proxy.Mute, proxy.Unmute),
		{Name: "connections cut", Do: func(*rand.Rand) error { proxy.CutAll(); return nil }},
		around("cut before a change", proxy.CutBefore),
		around("cut after a change", proxy.CutAfter),
		sqlHavoc(server, "sessions killed", `SELECT pg_terminate_backend(pid)`+others),
		sqlHavoc(server, "transactions killed", `SELECT pg_terminate_backend(pid)`+others+` AND state LIKE 'idle in%'`),
		sqlHavoc(server, "statements cancelled", `SELECT pg_cancel_backend(pid)`+others),
		sqlHavoc(server, "listeners killed", `SELECT pg_terminate_backend(pid)`+others+` AND query LIKE 'LISTEN%'`),
		sqlHavoc(server, "table locked", `BEGIN; LOCK TABLE leasehold; SELECT pg_sleep(0.5); COMMIT`),
		revives("restart with data", "", func() { server.Kill(t) }, func() { server.Restart(t) }),
	}
}

// sqlHavoc makes a fault from a statement. It ignores the error of a table that does not exist
// yet.
func sqlHavoc(server *postgrestest.Server, name, sql string) chaos.Havoc {
	return chaos.Havoc{Name: name, Do: func(*rand.Rand) error {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		conn, err := pgx.Connect(ctx, server.URL())
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		defer conn.Close(ctx)
		_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
		if told := new(pgconn.PgError); errors.As(err, &told) && told.Code == "42P01" {
			return nil
		}
		return err
	}}
}
