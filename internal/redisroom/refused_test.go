package redisroom_test

import (
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// connections returns the number of connections of a server, including its own.
func connections(t *testing.T, s *redistest.Server) int64 {
	return number(t, s, "clients", "connected_clients")
}

// serveMore makes a server refuse all connections after n more.
func serveMore(t *testing.T, s *redistest.Server, n int64) {
	t.Helper()
	noErr(t, s.Client().ConfigSet(background, "maxclients", fmt.Sprint(connections(t, s)+n)).Err())
}

// TestRefused_HR_G1_HR_H5_H6_EverybodyIsToldAtOnceThatNothingHappened: single callers and callers in
// a crowd get the same error, and no connection is left. The garbage collector would close
// forgotten connections some day.
func TestRefused_HR_G1_HR_H5_H6_EverybodyIsToldAtOnceThatNothingHappened(t *testing.T) {
	live.Test(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	secret := redistest.Start(t, "--requirepass", "secret")
	cluster, sentinel := redistest.StartCluster(t, 2), redistest.StartSentinel(t)
	plain, secure := redistest.Start(t), redistest.StartTLS(t, false)
	secureSentinel, strict := redistest.StartSentinelTLS(t, secure), redistest.StartTLS(t, true)
	occupied := redistest.Start(t)
	serveMore(t, occupied, 0)
	ca := func(s *redistest.Server) string { return url.QueryEscape(s.Certificates().CA) }
	counted := map[string][]*redistest.Server{ // the test counts their connections
		"wrong password": {secret}, "no password": {secret}, "no user of a cluster": cluster.Nodes, "no user of a sentinel": {sentinel.Sentinel},
	}
	for name, row := range map[string]struct {
		url, says string
		also      error
	}{
		"wrong password":         {"redis://:wrong@" + secret.Addr(), "check user name and password", driver.ErrPermanent},
		"no password":            {"redis://" + secret.Addr() + "/1", "requires a password", nil},
		"no such database":       {"redis://:secret@" + secret.Addr() + "/99", "fewer databases", driver.ErrPermanent},
		"no clients more":        {"redis://" + occupied.Addr(), "maxclients", nil},
		"plain text to TLS":      {"redis://" + secure.Addr(), "TLS", nil},
		"TIME is disabled":       {"redis://" + redistest.Start(t, "--rename-command", "TIME", "").Addr(), "TIME", nil},
		"no server":              {"redis://127.0.0.1:1", "refused", nil},
		"a server of no client":  {"redis+cluster://127.0.0.1:1", "refused", nil},
		"untrusted server":       {"rediss://" + secure.Addr(), "?ca=", driver.ErrPermanent},
		"untrusted sentinel":     {"rediss+sentinel://" + secureSentinel.Addr() + "?master=" + redistest.PrimaryName, "?ca=", driver.ErrPermanent},
		"untrusted node":         {"rediss+cluster://" + secure.Addr(), "?ca=", driver.ErrPermanent},
		"another name":           {secure.URL() + "?server-name=other&ca=" + ca(secure), "?server-name=", nil},
		"no certificate":         {strict.URL() + "?ca=" + ca(strict), "?cert=", nil},
		"no TLS":                 {"rediss://" + plain.Addr() + "?timeout=500ms", "redis://", nil},
		"no such user":           {"redis://nobody:secret@" + secret.Addr(), "check user name and password", driver.ErrPermanent},
		"no user of a cluster":   {"redis+cluster://nobody:wrong@" + strings.Join(cluster.Addrs(), ","), "check user name and password", nil},
		"no user of a sentinel":  {"redis+sentinel://" + sentinel.Sentinel.Addr() + "?sentinel-username=nobody&sentinel-password=x&master=" + redistest.PrimaryName, "check user name and password", nil},
		"unknown to sentinels":   {"redis+sentinel://" + sentinel.Sentinel.Addr() + "?master=nobody", "no primary of that name", driver.ErrPermanent},
		"no sentinel":            {"redis+sentinel://" + plain.Addr() + "?master=" + redistest.PrimaryName, "not a sentinel", driver.ErrPermanent},
		"no cluster":             {"redis+cluster://" + plain.Addr(), "cluster support disabled", driver.ErrPermanent},
		"a sentinel as a server": {"redis://" + sentinel.Sentinel.Addr(), "unknown command", driver.ErrPermanent},
	} {
		t.Run(name, func(t *testing.T) {
			eachClient(t, func(t *testing.T, open func(string) store) {
				var before []int64
				for _, s := range counted[name] {
					before = append(before, connections(t, s))
				}
				d := open(row.url)
				start := time.Now()
				var all sync.WaitGroup
				crowd := 65
				switch name {
				case "no password":
					crowd = 25 // a server closes a connection without a login after 1 KB of unread answers
				case "no TLS":
					crowd = 1 // it waits for its timeout
				}
				for i := range crowd {
					ask := func() {
						_, err := d.Acquire(background, request(fmt.Sprint("k", i), "a"))
						if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), row.says) || row.also != nil && !errors.Is(err, row.also) {
							t.Errorf("acquire %d: %v, want ErrUnavailable with %q that matches %v", i, err, row.says, row.also)
						}
					}
					if i == 0 {
						ask()
					} else {
						all.Go(ask)
					}
				}
				all.Wait()
				for range 10 {
					_, errs := renewAll(d, []driver.Ref{lease("k", "a")})
					if !errors.Is(errs[0], driver.ErrUnavailable) {
						t.Errorf("renewal: %v, want ErrUnavailable", errs[0])
					}
				}
				if !slices.Contains([]string{"TIME is disabled", "a sentinel as a server"}, name) { // which answer other questions
					if keys, _, err := d.List(background, "", ""); err == nil {
						t.Errorf("list: %q without an error", keys)
					}
					if report, err := d.(driver.Checker).Check(background); err == nil {
						t.Errorf("check: %+v without an error", report)
					}
				}
				if took := time.Since(start); took > 20*time.Second {
					live.Late(t, "took %v", took)
				}
				for i, s := range counted[name] {
					eventually(t, "all connections are closed", func() bool { return connections(t, s) == before[i] })
				}
			})
		})
	}
}

func TestRefused_HR_G1_SubscriptionLeavesNoConnection(t *testing.T) {
	live.Test(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	s, wrong := redistest.Start(t), redistest.Start(t, "--requirepass", "secret")
	noErr(t, s.Client().Do(background, "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "-@pubsub").Err())
	for url, s := range map[string]*redistest.Server{"redis://deaf:secret@" + s.Addr(): s, "redis://:wrong@" + wrong.Addr(): wrong} {
		eachClient(t, func(t *testing.T, open func(string) store) {
			now := func() int64 { return connections(t, s) }
			made := func() int64 { return number(t, s, "stats", "total_connections_received") }
			before, first := now(), made()
			if _, err := open(url).Watch(func(driver.Hint) {}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "tried again and again", func() bool { return made() >= first+5 })
			eventually(t, "one connection at most", func() bool { return now() <= before+1 })
		})
	}
}

// TestRenew_HR_G2_LeaseIsRenewedOnAFullServer: P3 promises that a healthy store loses no lease.
func TestRenew_HR_G2_LeaseIsRenewedOnAFullServer(t *testing.T) {
	for name, free := range map[string]int64{"connected with the grant": 2, "by the connection of the grant": 1} {
		t.Run(name, func(t *testing.T) {
			eachClient(t, func(t *testing.T, open func(string) store) {
				s := redistest.Start(t)
				serveMore(t, s, free)
				full := connections(t, s) + free
				d := open(s.URL())
				var reply driver.Reply
				eventually(t, "granted", func() bool {
					var err error
					reply, err = d.Acquire(background, request("k", "a"))
					return err == nil
				})
				eventually(t, "full", func() bool { return connections(t, s) == full })
				for range 5 {
					replies, errs := renewAll(d, []driver.Ref{{Key: "k", ID: "a", TTL: 10 * time.Second, Uncontended: reply.Uncontended}})
					if errs[0] != nil || replies[0].State != driver.Granted {
						t.Errorf("renewal: %+v, %v", replies[0], errs[0])
					}
				}
			})
		})
	}
}

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
		noErr(t, sentinel.Client().Do(background, "SENTINEL", "MONITOR", name, addr[0], addr[1], 1).Err())
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
