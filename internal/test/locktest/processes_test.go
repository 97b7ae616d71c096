//go:build unix

package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/driver/postgresdriver"
	"github.com/leasehold-go/leasehold/driver/rueidisdriver"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// W1 and its relatives with processes: this test binary runs itself as the
// contenders, which are killed and stopped while they hold locks. They tell on
// their output what they believe, with times of the one clock of their kernel.

// processLife is the time to live of the leases of a play.
const processLife = 400 * time.Millisecond

// processPlay is what the processes of an arena do.
type processPlay struct {
	processes, contenders int // contenders of each process
	pause                 time.Duration
	acts                  []Act
	quiet                 bool // nobody is killed
}

var plays = map[string]processPlay{
	"one queue":       {processes: 4, contenders: 50, acts: []Act{Contend}},
	"several at once": {processes: 8, contenders: 4, pause: 20 * time.Millisecond, acts: []Act{Several}, quiet: true},
	"all kinds":       {processes: 4, contenders: 24, pause: 100 * time.Millisecond, acts: Acts},
}

func TestProcesses_W1_NeverTwoHoldersOfAQueue(t *testing.T) { onStores(t, "one queue", 8*time.Second) }

func TestProcesses_K11_OppositeOrdersMakeProgress(t *testing.T) {
	onStores(t, "several at once", 4*time.Second)
}

func TestProcesses_Soak_AllKindsUnderRandomKills(t *testing.T) { onStores(t, "all kinds", soakLasts) }

// onStores has a play run on every store that processes can share, on one after the
// other, so that each has the machine.
func onStores(t *testing.T, name string, lasting time.Duration) {
	skip.Nightly(t, "it uses all of the machine")
	t.Run("Redis", func(t *testing.T) {
		server := redistest.Start(t)
		a := &arena{t: t, name: name, play: plays[name], url: server.URL()}
		a.run(lasting)
		a.nothingLeft(onGoRedis(t, server.Addr()))
		endsByItself(t, server)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		url := postgrestest.Start(t).URL() + "&create=true&timeout=500ms"
		a := &arena{t: t, name: name, play: plays[name], url: url}
		a.run(lasting)
		a.nothingLeft(onPostgres(t, url))
	})
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		d, err := filedriver.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		a := &arena{t: t, name: name, play: plays[name], url: "file://" + dir}
		a.run(lasting)
		a.nothingLeft(d)
	})
}

// act is the whole of a process of contenders: it lasts until its input ends.
func act(url, name string) int {
	d, err := onStore(url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	client, err := leasehold.New(d, leasehold.WithTTL(processLife))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1)) // nothing ever comes
		cancel()
	}()
	p := plays[name]
	mix := &Mix{
		Client: client, Name: fmt.Sprint("p", os.Getpid()), Prefix: "k/", TTL: processLife, Pause: p.pause, Now: now,
		See:  func(s Sighting) { fmt.Println("saw", s) },
		Did:  func(what string) { fmt.Println("did", what) },
		Fail: complain(ctx),
	}
	mix.Run(ctx, p.contenders, p.acts...)
	// What could not be given back ends by itself: nothing may be left in the end.
	if err := client.Close(); err != nil && !errors.Is(err, leasehold.ErrUnknown) && !errors.Is(err, leasehold.ErrUnavailable) {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// onStore opens the store of a play.
func onStore(url string) (driver.Driver, error) {
	switch scheme, rest, _ := strings.Cut(url, "://"); scheme {
	case "redis":
		return rueidisdriver.Open(url)
	case "file":
		return filedriver.Open(rest)
	default:
		return postgresdriver.Open(url)
	}
}

// complain returns what reports an outcome that must not be. When the process
// ends everything may fail.
func complain(ctx context.Context) func(error) {
	var mu sync.Mutex
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

// now reads the clock that all processes have in common, and that nobody sets.
func now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
