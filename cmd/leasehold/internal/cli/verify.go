package cli

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/checker"
	"github.com/leasehold-go/leasehold/internal/history"
)

// verifyFlags are the flags of `leasehold bench --verify`.
type verifyFlags struct {
	processes int
	seed      uint64
	dir       string
	check     string
	work      bool
}

func (f *verifyFlags) register(flags *pflag.FlagSet) {
	flags.IntVar(&f.processes, "processes", 4, "how many processes contend with --verify, `N`")
	flags.Uint64Var(&f.seed, "seed", 0, "choose the faults of this `SEED` (default: another one each time)")
	flags.StringVar(&f.dir, "dir", "", "keep the history in this `DIR` (default: only if a promise was broken)")
	flags.StringVar(&f.check, "check", "", "judge the history in `FILE`")
	flags.BoolVar(&f.work, "work", false, "")
	_ = flags.MarkHidden("work") // what the processes are started with
}

// span returns the duration of the measurement.
func (f *benchFlags) span(usual time.Duration) time.Duration {
	if f.lasting <= 0 {
		return usual
	}
	return time.Duration(f.lasting)
}

// verifyStore runs random operations on the store from several processes, and checks the
// history that they recorded.
func (f *benchFlags) verifyStore(cmd *cobra.Command) error {
	if f.processes < 1 {
		return usage("--processes %d: want at least 1", f.processes)
	}
	rawURL, err := f.storeURL()
	if err != nil {
		return err
	}
	d, err := stores.Open(rawURL)
	if err != nil {
		return classify(err)
	}
	rules := rulesOf(d)
	if err := d.Close(); err != nil {
		return classify(err)
	}
	dir, err := os.MkdirTemp(f.dir, "leasehold-bench-")
	if err != nil {
		return usage("%w", err)
	}
	if f.seed == 0 {
		f.seed = mrand.Uint64()
	}
	const ttl = 1500 * time.Millisecond
	g := &chaos.Game{
		Command: func() *exec.Cmd { return exec.Command(os.Args[0], "bench", "--work") },
		Dir:     dir, Stores: []string{rawURL}, Label: stores.Redact(rawURL), Rules: rules,
		Plan: chaos.Plan{
			Contenders: 5, TTL: ttl, Hold: 20 * time.Millisecond, Pause: 100 * time.Millisecond, Keys: 2, Epoch: 20 * time.Second,
			Prefix: benchPrefix + rand.Text() + "/", Faulty: 0.01,
		},
		Processes: f.processes, Lasting: f.span(30 * time.Second), Calm: 1500 * time.Millisecond, Seed: f.seed,
		Look: func() (driver.Driver, error) { return stores.Open(rawURL) },
		Log:  func(format string, args ...any) { fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: "+format+"\n", args...) },
	}
	path, err := g.Play(cmd.Context())
	if err != nil {
		return &exitError{code: codeInternal, err: fmt.Errorf("the store could not be tried: %w", err)}
	}
	if err := f.judge(cmd, path); err != nil || f.dir != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "leasehold: the history is %s, its seed %d\n", path, f.seed)
		return err
	}
	return classify(os.RemoveAll(dir))
}

// rulesOf returns the promises of a store, as far as its driver tells what it supports.
func rulesOf(d driver.Driver) history.Rules {
	rules := history.Rules{Prompt: int64(8 * time.Second)}
	rules.Tokens = driver.Supports(d, driver.Request{MinToken: 1}) == nil
	// A store that can put readers last keeps a queue.
	rules.Queue = driver.Supports(d, driver.Request{Policy: driver.WritersFirst}) == nil
	return rules
}

// judge checks a history and prints the result.
func (f *benchFlags) judge(cmd *cobra.Command, path string) error {
	h, err := history.Load(path)
	if err != nil {
		return usage("%w", err)
	}
	v := checker.Judge(h)
	if f.json {
		if err := json.NewEncoder(cmd.OutOrStdout()).Encode(v); err != nil {
			return classify(err)
		}
	} else {
		fmt.Fprintln(cmd.OutOrStdout(), v)
	}
	if len(v.Violations) > 0 {
		return &exitError{code: codeNotThere, err: errors.New("a promise was broken")}
	}
	return nil
}
