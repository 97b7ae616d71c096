package cli

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// benchFlags are the flags of `leasehold bench`.
type benchFlags struct {
	*global
	lasting    duration
	goroutines int
}

func newBench(g *global) *cobra.Command {
	f := &benchFlags{global: g}
	cmd := &cobra.Command{
		Use:   "bench [flags]",
		Short: "Measure the store",
		Long: strings.TrimSpace(`
Bench measures the store from this machine: the time of a lock and its release, how
many such pairs there are in a second, and the time from a release until the next
waiter has the lock. It shares the store with other clients, and leaves nothing in
it. Compare only results of one machine.
`),
		Example: `  leasehold bench --store redis://db1:6379`,
		Args:    atMost(0),
		PreRunE: func(*cobra.Command, []string) error {
			if f.lasting <= 0 {
				return usage("--for %v is not above 0", time.Duration(f.lasting))
			}
			if f.goroutines < 1 {
				return usage("--goroutines %d: want at least 1", f.goroutines)
			}
			return nil
		},
		RunE: g.withClient(f.measure),
	}
	flags := cmd.Flags()
	durationVar(flags, &f.lasting, "for", 6*time.Second, "duration of the measurement")
	flags.IntVar(&f.goroutines, "goroutines", 16, "number of goroutines that measure the throughput, `N`")
	return cmd
}

// benchPrefix is the prefix of the locks that bench takes.
const benchPrefix = "leasehold-bench/"

// figures are the results of a measurement.
type figures struct {
	Store string `json:"store"`
	// Pair is a lock and its release, by one goroutine.
	Pair spread `json:"pair"`
	// PairsPerSecond is the sum for all goroutines, each with its own lock.
	Goroutines     int     `json:"goroutines"`
	PairsPerSecond float64 `json:"pairsPerSecond"`
	// HandOver is the time from the call of Release until a waiter in another client
	// has the lock.
	HandOver spread `json:"handOver"`
}

// spread summarizes a set of durations.
type spread struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50Ms"`
	P99   float64 `json:"p99Ms"`
}

func spreadOf(took []time.Duration) spread {
	if len(took) == 0 {
		return spread{}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return spread{len(took), ms(took[len(took)/2]), ms(took[len(took)*99/100])}
}

// measure takes the three measurements, each for a third of the time.
func (f *benchFlags) measure(cmd *cobra.Command, _ []string, a *leasehold.Client) error {
	each := time.Duration(f.lasting) / 3
	b, err := open(f.used)
	if err != nil {
		return err
	}
	defer b.Close()
	out := figures{Store: storeurl.Redact(f.used), Goroutines: f.goroutines}
	prefix := benchPrefix + rand.Text() + "/"
	if out.Pair, err = pairs(cmd.Context(), a, prefix+"pair", each); err == nil {
		out.PairsPerSecond, err = throughput(cmd.Context(), a, prefix, f.goroutines, each)
	}
	if err == nil {
		out.HandOver, err = handOvers(cmd.Context(), a, b, prefix+"handover", each)
	}
	if err != nil {
		return err
	}
	if f.json {
		return json.NewEncoder(cmd.OutOrStdout()).Encode(out)
	}
	out.show(cmd.OutOrStdout())
	return nil
}

func (f *figures) show(w io.Writer) {
	fmt.Fprintln(w, f.Store)
	row := func(what string, s spread) []string {
		return []string{"  " + what, fmt.Sprintf("%.3f ms", s.P50), fmt.Sprintf("p99 %.3f ms", s.P99), fmt.Sprintf("of %d", s.Count)}
	}
	table(w, [][]string{
		row("lock and release", f.Pair),
		row("hand-over to a waiter", f.HandOver),
		{fmt.Sprintf("  %d goroutines", f.Goroutines), fmt.Sprintf("%.0f pairs/s", f.PairsPerSecond)},
	})
}

// pair acquires and releases a lock.
func pair(ctx context.Context, c *leasehold.Client, key string) error {
	lease, err := c.Mutex(key).Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Release()
}

// pairs measures the pairs of one goroutine, one after the other.
func pairs(ctx context.Context, c *leasehold.Client, key string, lasting time.Duration) (spread, error) {
	for range 10 { // connect, and fill the caches of client and server
		if err := pair(ctx, c, key); err != nil {
			return spread{}, err
		}
	}
	var took []time.Duration
	for end := time.Now().Add(lasting); time.Now().Before(end); {
		start := time.Now()
		if err := pair(ctx, c, key); err != nil {
			return spread{}, err
		}
		took = append(took, time.Since(start))
	}
	return spreadOf(took), nil
}

// throughput counts the pairs of n goroutines, each with its own lock.
func throughput(ctx context.Context, c *leasehold.Client, prefix string, n int, lasting time.Duration) (perSecond float64, err error) {
	counts, errs := make([]int, n), make([]error, n)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			key := fmt.Sprint(prefix, i)
			for time.Since(start) < lasting && errs[i] == nil {
				errs[i] = pair(ctx, c, key)
				counts[i]++
			}
		})
	}
	wg.Wait()
	sum := 0
	for i := range n {
		if errs[i] != nil {
			return 0, errs[i]
		}
		sum += counts[i]
	}
	return float64(sum) / time.Since(start).Seconds(), nil
}

// handOvers measures hand-overs between two clients that wait for each other.
func handOvers(ctx context.Context, a, b *leasehold.Client, key string, lasting time.Duration) (spread, error) {
	holder, err := a.Mutex(key).Lock(ctx)
	if err != nil {
		return spread{}, err
	}
	waits, holds := b, a
	var took []time.Duration
	for end := time.Now().Add(lasting); time.Now().Before(end) && err == nil; {
		var released time.Time
		queued := make(chan struct{}, 1)
		got := make(chan time.Time, 1)
		var next *leasehold.Lease
		go func() {
			observed := leasehold.ObserveWait(ctx, func(leasehold.WaitEvent) {
				select {
				case queued <- struct{}{}:
				default:
				}
			})
			next, err = waits.Mutex(key).Lock(observed)
			got <- time.Now()
		}()
		select {
		case <-queued:
			released = time.Now()
			if e := holder.Release(); e != nil {
				<-got
				return spread{}, e
			}
			at := <-got
			took = append(took, at.Sub(released))
		case <-got:
		}
		holder, waits, holds = next, holds, waits
	}
	if err != nil {
		return spread{}, err
	}
	return spreadOf(took), holder.Release()
}
