package httpdriver_test

import (
	"context"
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/locktest"
	"github.com/leasehold-go/leasehold/internal/redistest"
	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/rueidisdriver"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// The cases wait most of the time, so more of them than cores may run.
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

func TestLibrary_OverAServiceOnMemory(t *testing.T) {
	t.Parallel()
	url := serve(t, memdriver.New())
	locktest.Run(t, locktest.Config{Open: func(tb testing.TB) driver.Driver { return open(tb, url) }})
}

// TestLibrary_OverAServiceOnRedis takes its time with the race detector, which
// looks at the same code over memory; so it is among the long tests there.
func TestLibrary_OverAServiceOnRedis(t *testing.T) {
	if racing {
		t.Skip("played over memory with the race detector, and by make soak")
	}
	t.Parallel()
	overRedis(t)
}

func overRedis(t *testing.T) {
	server := redistest.Start(t)
	d, err := rueidisdriver.Open(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	url := serve(t, d)
	locktest.Run(t, locktest.Config{
		Open: func(tb testing.TB) driver.Driver { return open(tb, url) },
		Flush: func(tb testing.TB) {
			if err := server.Client().FlushAll(context.Background()).Err(); err != nil {
				tb.Fatal(err)
			}
		},
	})
}
