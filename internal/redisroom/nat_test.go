package redisroom_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// A sentinel behind NAT, or in a container, returns an address that is not reachable from here.
func TestAcquire_ErrorNamesThePrimaryThatTheSentinelsName(t *testing.T) {
	live.Test(t)
	sentinel := redistest.StartSentinel(t).Sentinel
	hung := redistest.Start(t)
	hung.Stop()
	defer hung.Cont()
	for name, addr := range map[string][2]string{
		"hung":    {hung.Host(), strconv.Itoa(hung.Port())},
		"refused": {"127.0.0.1", "1"},
	} {
		if err := sentinel.Client().Do(background, "SENTINEL", "MONITOR", name, addr[0], addr[1], 1).Err(); err != nil {
			t.Fatal(err)
		}
		eachClient(t, func(t *testing.T, open func(string) store) {
			d := open("redis+sentinel://" + sentinel.Addr() + "?timeout=1s&master=" + name)
			for range 2 {
				_, err := d.Acquire(background, request("k", "a"))
				if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), addr[0]+":"+addr[1]) || !strings.Contains(err.Error(), "announce-ip") {
					t.Errorf("%s: %v, want ErrUnavailable that names %s", name, err, addr)
				}
			}
		})
	}
}
