package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

// postgresServer is a server as the tests start it: without fsync, because Redis and etcd
// do not persist here either.
type postgresServer struct {
	url   string
	admin *pgx.Conn
	stop  func()
}

// startPostgres starts a server with enough connections for contenders that hold one per
// lock.
func startPostgres(ctx context.Context) (s *postgresServer, err error) {
	h := new(harness)
	defer func() {
		if failed := recover(); failed != nil {
			h.close()
			err = fmt.Errorf("start postgres: %v", failed)
		}
	}()
	s = &postgresServer{url: postgrestest.Start(h, "max_connections=1400", "autovacuum_naptime=5s").URL(), stop: h.close}
	if s.admin, err = pgx.Connect(ctx, s.url); err != nil {
		h.close()
	}
	return s, err
}

func (s *postgresServer) close() {
	_ = s.admin.Close(context.Background())
	s.stop()
}

// expense is the total cost to the server and its client so far.
type expense struct {
	commits, wal   float64 // a transaction counts if it writes
	server, client time.Duration
}

func (s *postgresServer) spent(ctx context.Context) (e expense, err error) {
	var pids []int
	err = s.admin.QueryRow(ctx, `SELECT pg_current_xact_id()::text::float8, pg_current_wal_insert_lsn() - '0/0'::pg_lsn,
		ARRAY(SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())`).Scan(&e.commits, &e.wal, &pids)
	for _, pid := range pids {
		e.server += computed(pid)
	}
	e.client = processCPU()
	return e, err
}

// computed returns the CPU time of a process, as Linux counts it: in hundredths of
// a second. 0 if it has ended.
func computed(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ") // behind the name
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond
}

// since returns the cost since before, divided by n.
func (e expense) since(before expense, n float64) (commits, wal, server, client float64) {
	return (e.commits - before.commits - 1) / n, (e.wal - before.wal) / n,
		micros(e.server-before.server) / n, micros(e.client-before.client) / n
}

// harness replaces the test that the server belongs to.
type harness struct {
	testing.TB
	cleanups []func()
}

func (h *harness) Helper()                        {}
func (h *harness) Failed() bool                   { return false }
func (h *harness) Cleanup(f func())               { h.cleanups = append(h.cleanups, f) }
func (h *harness) Errorf(format string, a ...any) { fmt.Printf(format+"\n", a...) }
func (h *harness) Logf(string, ...any)            {}
func (h *harness) Fatal(a ...any)                 { panic(errors.New(fmt.Sprint(a...))) }
func (h *harness) Fatalf(format string, a ...any) { panic(fmt.Errorf(format, a...)) }

func (h *harness) close() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}
