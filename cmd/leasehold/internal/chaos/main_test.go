//go:build linux

package chaos_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/test/checker"
	"github.com/leasehold-go/leasehold/internal/test/history"
)

var (
	lasting = flag.Duration("chaos.for", time.Minute, "how long every store suffers")
	calm    = flag.Duration("chaos.calm", 1500*time.Millisecond, "mean time between two faults of one kind of victim")
	seed    = flag.Uint64("chaos.seed", 0, "choose the faults of this seed")
	keep    = flag.String("chaos.dir", "", "keep histories and verdicts in this directory")
	crowds  = flag.Duration("chaos.pause", 150*time.Millisecond, "mean time between two attempts of one contender")
)

// workEnv makes a process of this binary run a crowd.
const workEnv = "LEASEHOLD_CHAOS_WORK"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(workEnv) != "":
		end(chaos.Work(os.Stdin, open))
	case os.Getenv(serveEnv) != "":
		end(serve())
	}
	flag.Parse()
	// The tests run in parallel, because they wait most of the time; with more than five,
	// two cores are so busy that hardly any contender gets a lock.
	if err := flag.Set("test.parallel", "5"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// end ends a process that does not run the tests.
func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// viaGoRedis is a prefix of URLs. It opens the store with go-redis instead of rueidis.
const viaGoRedis = "go-redis+"

// open opens a store by its URL.
func open(rawURL string) (driver.Driver, error) {
	if rest, ok := strings.CutPrefix(rawURL, viaGoRedis); ok {
		return redisdriver.Open(rest)
	}
	return stores.Open(rawURL)
}

// tryTimeout bounds one try of a driver, and so the delay that a lost reply causes.
const tryTimeout = 300 * time.Millisecond

// ttl is the TTL of the leases under test.
const ttl = 1500 * time.Millisecond

// plan returns the plan of the crowds.
func plan() chaos.Plan {
	return chaos.Plan{
		Contenders: 5, TTL: ttl, Hold: 20 * time.Millisecond, Pause: *crowds, Keys: 3, Epoch: 20 * time.Second,
		Prefix: "chaos/", Faulty: 0.005,
	}
}

// queue has the rules of a store that mints tokens and keeps a queue.
var queue = history.Rules{Tokens: true, Queue: true, Prompt: int64(8 * time.Second)}

// suffer plays a game of a store and its faults, and checks its history against the promises.
func suffer(t *testing.T, g *chaos.Game) {
	t.Helper()
	g.Command = func() *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), workEnv+"=1", "GORACE=atexit_sleep_ms=0")
		return cmd
	}
	g.Dir, g.Open, g.Log = t.TempDir(), open, t.Logf
	g.Plan, g.Processes, g.Lasting, g.Calm, g.Seed = plan(), 4, *lasting, *calm, *seed
	if g.Seed == 0 {
		g.Seed = rand.Uint64()
	}
	if *keep != "" {
		g.Dir = filepath.Join(*keep, strings.ReplaceAll(t.Name(), "/", "_"))
		if err := os.MkdirAll(g.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	path, err := g.Play(context.Background())
	if err != nil {
		t.Errorf("seed %d: %v", g.Seed, err)
	}
	judge(t, g, path)
}

func judge(t *testing.T, g *chaos.Game, path string) {
	t.Helper()
	records, err := history.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	v := checker.Judge(g.Rules, records)
	text := fmt.Sprintf("%s for %v, seed %d\n%s", g.Label, g.Lasting, g.Seed, v)
	if *keep != "" {
		if err := os.WriteFile(filepath.Join(g.Dir, "verdict.txt"), []byte(text+"\n"), 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Log(text)
	if len(v.Violations) > 0 {
		t.Errorf("%d violations; play again with -chaos.seed=%d", len(v.Violations), g.Seed)
	}
	if v.Grants < 10 || len(v.Faults) < 3 { // also on a busy machine
		t.Errorf("too few grants or faults")
	}
}
