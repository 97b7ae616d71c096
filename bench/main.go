// Command bench compares Leasehold with other lock libraries on servers that it starts
// itself. It prints Markdown; docs/performance.md explains the tables.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// experiment is one table.
type experiment struct {
	name string
	run  func(context.Context, *bench) *table
}

func experiments() []experiment {
	return []experiment{
		{"free", free},
		{"free-shared", freeShared},
		{"throughput-16", throughput(16, ownKey)},
		{"throughput-256", throughput(256, ownKey)},
		{"throughput-fresh", throughput(256, freshKeys)},
		{"server", serverTime(ownKey)},
		{"server-fresh", serverTime(freshKeys)},
		{"capacity", capacity},
		{"requeue", requeue},
		{"local", func(ctx context.Context, b *bench) *table { return local(ctx, b, 1) }},
		{"local-4", func(ctx context.Context, b *bench) *table { return local(ctx, b, processes) }},
		{"drain", func(ctx context.Context, b *bench) *table { return drain(ctx, b, b.waiters, b.drains) }},
		{"drain-4", func(ctx context.Context, b *bench) *table { return drain(ctx, b, 4, 2*b.drains) }},
		{"renewal", renewal},
		{"renewal-most", renewalMost},
		{"crash", crash},
		{"stall", stall},
		{"readers", readers},
		{"waiters", waiters},
		{"directory", directory},
		{"quorum", quorum},
		{"service", service},
		{"postgres", postgresFree},
		{"postgres-queue", postgresQueue},
		{"postgres-renewal", postgresRenewal},
	}
}

// effort defines how long experiments take.
type effort struct {
	rounds  int           // of short experiments
	slice   time.Duration // of one contender in one round
	waiters int
	crowds  int           // rounds with waiters that queue again
	crowd   time.Duration // length of a round with such waiters
	drains  int
	leases  int
	most    int           // the greatest number of leases in one process
	watch   time.Duration // how long renewals are watched
	ttl     time.Duration // of leases that are renewed
	mostTTL time.Duration // of the greatest number of leases; they are watched for a third of it
	crashes int
	queues  []int // lengths to compare
	samples int   // calls per length
	keys    int   // without a relation to locks

	warmUp   time.Duration // of waiters, before anything is counted
	settle   time.Duration // pause before a drain
	patience time.Duration // time limit of a drain
	crashTTL time.Duration // of a lock of a dead holder
}

var (
	full = effort{
		rounds: 9, slice: 100 * time.Millisecond, waiters: 100, crowds: 3, crowd: 1600 * time.Millisecond, drains: 5,
		leases: 10_000, most: 1_000_000, mostTTL: 30 * time.Second, watch: 4 * time.Second, ttl: 6 * time.Second,
		crashes: 20, queues: []int{10, 100, 1_000, 10_000}, samples: 100, keys: 1_000_000,
		warmUp: 300 * time.Millisecond, settle: 100 * time.Millisecond, patience: 3 * time.Second, crashTTL: 700 * time.Millisecond,
	}
	quick = effort{
		rounds: 2, slice: 40 * time.Millisecond, waiters: 100, crowds: 1, crowd: 400 * time.Millisecond, drains: 1,
		leases: 1_000, most: 20_000, mostTTL: 3 * time.Second, watch: 600 * time.Millisecond, ttl: 900 * time.Millisecond,
		crashes: 5, queues: []int{10, 100, 1_000}, samples: 20, keys: 10_000,
		warmUp: 200 * time.Millisecond, settle: 60 * time.Millisecond, patience: 2 * time.Second, crashTTL: 400 * time.Millisecond,
	}
)

// bench is the environment of an experiment.
type bench struct {
	effort
	harness         // of an experiment, or of a part of it
	lasting harness // of the servers
	srv     *redistest.Server
	etcd    *etcdServer          // nil until it is needed
	pg      *postgrestest.Server // likewise
	who     *regexp.Regexp       // matches names of the contenders to measure
	made    int                  // how many keys compare has made
}

// with calls f with a bench and its servers, and stops them.
func with(e effort, who *regexp.Regexp, f func(*bench)) error {
	b := &bench{effort: e, who: who}
	return b.lasting.attempt(func() {
		b.srv = redistest.Start(&b.lasting)
		f(b)
	})
}

func main() {
	serveEtcdIfAsked()
	var only, who regexp.Regexp
	all := regexp.MustCompile("")
	flag.TextVar(&only, "only", all, "run only experiments with names that match this regular expression")
	flag.TextVar(&who, "who", all, "compare only contenders with names that match this regular expression")
	brief := flag.Bool("quick", false, "measure briefly")
	json := flag.String("json", "", "write the figures to this file, as JSON")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e := full
	if *brief {
		e = quick
	}
	exit(with(e, &who, func(b *bench) {
		r := &report{Go: runtime.Version(), Redis: b.srv.Info(b, "server")["redis_version"], CPUs: runtime.NumCPU(), Quick: *brief}
		fmt.Printf("%s, Redis %s, %d CPUs\n\n", r.Go, r.Redis, r.CPUs)
		failed := b.run(ctx, &only, r)
		fmt.Printf("%.0f s\n", r.Seconds)
		if *json != "" {
			failed = errors.Join(failed, r.write(*json))
		}
		check(failed)
	}))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run runs the selected experiments, prints their tables and adds them to the report.
func (b *bench) run(ctx context.Context, only *regexp.Regexp, r *report) (failed error) {
	started := time.Now()
	for _, e := range experiments() {
		if !only.MatchString(e.name) {
			continue
		}
		t, err := b.measure(ctx, e)
		if err != nil { // the remaining experiments may still succeed
			failed = errors.Join(failed, fmt.Errorf("%s: %w", e.name, err))
			continue
		}
		r.Tables = append(r.Tables, t)
		fmt.Println(t.markdown())
	}
	r.Seconds = time.Since(started).Seconds()
	return failed
}

// measure runs one experiment on an empty server.
func (b *bench) measure(ctx context.Context, e experiment) (t *table, err error) {
	err = b.attempt(func() {
		check(b.srv.Client().FlushAll(ctx).Err())
		b.srv.ResetStats(b)
		t = e.run(ctx, b)
		t.Name = e.name
	})
	return t, err
}

// limited returns a context that ends some time after d, if the work of duration d
// has not ended: then a peer hangs. The context shows no deadline.
func (b *bench) limited(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := time.AfterFunc(d+b.patience, cancel)
	return ctx, func() {
		stop.Stop()
		cancel()
	}
}
