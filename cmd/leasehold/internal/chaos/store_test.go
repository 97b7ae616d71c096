//go:build linux

package chaos_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
	"github.com/leasehold-go/leasehold/internal/timing"
)

func TestChaos_OnADirectory(t *testing.T) {
	t.Parallel()
	suffer(t, &chaos.Game{Label: "directory", Stores: []string{"file://" + t.TempDir()}, Rules: queue})
}

// TestChaos_OnOneServer uses a server that keeps its data over a restart. Its clock is
// stepped back and slewed. Exclusion must hold without exception.
func TestChaos_OnOneServer(t *testing.T) {
	t.Parallel()
	server, clock := startLasting(t)
	sufferBehindProxy(t, "one Redis server", server, append(clockHavoc(clock), restart(server)))
}

// TestChaos_OnAServerWhoseClockLeaps also steps the server's clock forward, which ends
// leases early: only exclusion, and promises that depend on it,
// may fail, and only around the step.
func TestChaos_OnAServerWhoseClockLeaps(t *testing.T) {
	t.Parallel()
	server, clock := startLasting(t)
	sufferBehindProxy(t, "one Redis server whose clock leaps", server, append(slices.Concat(clockHavoc(clock), leaps(clock)), restart(server)))
}

// TestChaos_OnAServerThatForgets uses a server that is emptied and restarted empty, so that
// exclusion cannot hold: tokens must still rise, and losses must be reported.
func TestChaos_OnAServerThatForgets(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes")
	sufferBehindProxy(t, "one Redis server that forgets", server, []chaos.Havoc{rollback(server), forget(server), flush(server)})
}

// startLasting starts a server that writes changes to the disk before it answers. Writing
// every second is not enough: while the disk is slow, answers would precede the writes.
func startLasting(t *testing.T) (*redistest.Server, *redistest.Clock) {
	t.Helper()
	return redistest.StartWithClock(t, "--appendonly", "yes", "--appendfsync", "always")
}

// sufferBehindProxy makes both client libraries use one server through one proxy, which
// adds faults of the network.
func sufferBehindProxy(t *testing.T, label string, server *redistest.Server, havoc []chaos.Havoc) {
	t.Helper()
	proxy := respproxy.Start(t, server.Addr())
	suffer(t, &chaos.Game{
		Label: label, Rules: queue, Havoc: slices.Concat(serverHavoc(server), proxyHavoc(proxy), havoc),
		Stores: []string{throughProxy(proxy), viaGoRedis + throughProxy(proxy)}, Look: server.URL(), Observe: waits(server),
	})
}

// waits records slow answers of a server that no fault of the game has caused. They happen
// while its disk is slow: it answers only after its write, so that a confirmation of a
// hand-over may be too late.
func waits(s *redistest.Server) func(context.Context, func(history.Record)) {
	return slow(func(ctx context.Context) { _ = s.Client().Ping(ctx) })
}

// slow records when ask took too long. It ignores errors: a fault that causes them is recorded
// separately.
func slow(ask func(context.Context)) func(context.Context, func(history.Record)) {
	const beat, tooLong = 50 * time.Millisecond, 200 * time.Millisecond
	return func(ctx context.Context, note func(history.Record)) {
		for ok := true; ok; ok = timing.Sleep(ctx, beat) {
			since := chaos.Now()
			ask(ctx)
			if now := chaos.Now(); now-since > int64(tooLong) {
				note(history.Record{At: now, Since: since - int64(beat), What: history.Fault, Note: "no answer"})
			}
		}
	}
}

func throughProxy(p *respproxy.Proxy) string {
	return "redis://" + p.Addr() + "?timeout=" + tryTimeout.String()
}

// upTo returns a random time that is long enough to have an effect.
func upTo(rnd *rand.Rand, d time.Duration) time.Duration {
	return d/20 + time.Duration(rnd.Int64N(int64(d)))
}

// lasts makes a fault that is healed after a random time, which may be shorter or longer
// than a lease.
func lasts(name string, begin, end func()) chaos.Havoc {
	return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
		begin()
		time.Sleep(upTo(rnd, 2*ttl))
		end()
		return nil
	}}
}

func tell(s *redistest.Server, args ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return s.Client().Do(ctx, args...).Err()
}

// serverHavoc returns the faults of a server that keeps its data.
func serverHavoc(s *redistest.Server) []chaos.Havoc {
	pause := func(rnd *rand.Rand) error {
		d := upTo(rnd, 2*ttl)
		err := tell(s, "CLIENT", "PAUSE", d.Milliseconds(), "ALL")
		time.Sleep(d)
		return err
	}
	return append(commands(always(s)), lasts("stop the server", s.Stop, s.Cont), chaos.Havoc{Name: "CLIENT PAUSE", Do: pause})
}

// on makes a fault of the server that is picked. It ends when the store is healed.
type on func(name, forgets string, do func(rnd *rand.Rand, s *redistest.Server) error) chaos.Havoc

func picked(pick func(rnd *rand.Rand) (*redistest.Server, error), heal func() error) on {
	return func(name, forgets string, do func(rnd *rand.Rand, s *redistest.Server) error) chaos.Havoc {
		return chaos.Havoc{Name: name, Forgets: forgets, Do: func(rnd *rand.Rand) error {
			s, err := pick(rnd)
			if err != nil {
				return err
			}
			if err := do(rnd, s); err != nil {
				return err
			}
			return heal()
		}}
	}
}

// always picks a server that needs no healing.
func always(s *redistest.Server) on {
	return picked(func(*rand.Rand) (*redistest.Server, error) { return s, nil }, func() error { return nil })
}

// commands returns faults that are commands to a server and lose no data.
func commands(to on) []chaos.Havoc {
	return []chaos.Havoc{
		to("CLIENT KILL normal", "", asks("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")),
		to("CLIENT KILL pubsub", "", asks("CLIENT", "KILL", "TYPE", "pubsub")),
		to("SCRIPT FLUSH", "", asks("SCRIPT", "FLUSH")),
	}
}

// revives kills a server and starts it again after a while.
func revives(name, forgets string, kill, start func()) chaos.Havoc {
	return chaos.Havoc{Name: name, Forgets: forgets, Do: func(rnd *rand.Rand) error {
		kill()
		time.Sleep(upTo(rnd, ttl))
		start()
		return nil
	}}
}

// rollback kills a server and starts it again with a log that may lack its end.
func rollback(s *redistest.Server) chaos.Havoc {
	return revives("restart with old data", history.ForgetsSome, s.Kill, s.Restart)
}

// restart kills a server and starts it again with the data that it wrote before
// it answered.
func restart(s *redistest.Server) chaos.Havoc {
	return revives("restart with data", "", s.Kill, s.Restart)
}

// forget kills a server and starts it again without data.
func forget(s *redistest.Server) chaos.Havoc {
	return chaos.Havoc{Name: "restart without data", Forgets: history.ForgetsAll, Do: func(rnd *rand.Rand) error {
		s.Kill()
		err := wipe(s)
		time.Sleep(upTo(rnd, ttl))
		s.Restart()
		return err
	}}
}

// wipe removes the files of a server.
func wipe(s *redistest.Server) error {
	return errors.Join(os.RemoveAll(filepath.Join(s.Dir(), "appendonlydir")), os.RemoveAll(filepath.Join(s.Dir(), "dump.rdb")))
}

func flush(s *redistest.Server) chaos.Havoc {
	return always(s)("FLUSHALL", history.ForgetsAll, asks("FLUSHALL"))
}

// maxStep bounds the step of a clock.
const maxStep = 2 * ttl

// clockHavoc returns the faults of a clock that must break no promise: the clock is
// stepped back, so that leases last longer, or its rate changes by less than
// the drift factor.
func clockHavoc(c *redistest.Clock) []chaos.Havoc {
	back := chaos.Havoc{Name: "clock stepped back", Weight: 3, Do: func(rnd *rand.Rand) error {
		c.Step(-upTo(rnd, maxStep))
		return nil
	}}
	// 0.8 % is less than the default drift factor of 1 %.
	return []chaos.Havoc{back, runs("clock slow", c, -0.5), runs("clock slewed forward", c, 0.008), runs("clock slewed back", c, -0.008)}
}

// leaps returns the faults that make the clock of the server gain time.
func leaps(c *redistest.Clock) []chaos.Havoc {
	step := chaos.Havoc{Name: "clock stepped forward", Do: func(rnd *rand.Rand) error {
		c.Step(upTo(rnd, maxStep))
		return nil
	}}
	there := chaos.Havoc{Name: "clock stepped forward and back", Do: func(rnd *rand.Rand) error {
		d := upTo(rnd, maxStep)
		c.Step(d)
		time.Sleep(upTo(rnd, ttl))
		c.Step(-d)
		return nil
	}}
	havoc := []chaos.Havoc{step, there, runs("clock fast", c, 0.5)}
	for i := range havoc {
		havoc[i].Forgets, havoc[i].Weight = history.ForgetsLeases, 3
	}
	return havoc
}

// runs makes a clock gain the given seconds per second, for a while. It gains less
// if the machine is busy, but never more.
func runs(name string, c *redistest.Clock, gain float64) chaos.Havoc {
	const tick = 10 * time.Millisecond
	return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
		for end := time.Now().Add(upTo(rnd, 2*ttl)); time.Now().Before(end); {
			time.Sleep(tick)
			c.Step(time.Duration(gain * float64(tick)))
		}
		return nil
	}}
}

// stopFor stops a server for a random time, which may be shorter or longer than a lease.
func stopFor(rnd *rand.Rand, s *redistest.Server) error {
	s.Stop()
	time.Sleep(upTo(rnd, 2*ttl))
	s.Cont()
	return nil
}

// asks makes a fault from a command, for any server.
func asks(args ...any) func(*rand.Rand, *redistest.Server) error {
	return func(_ *rand.Rand, s *redistest.Server) error { return tell(s, args...) }
}

// proxyHavoc returns the faults of a network.
func proxyHavoc(p *respproxy.Proxy) []chaos.Havoc {
	script := respproxy.Command("EVALSHA")
	// some makes a fault of the next requests, and waits for a while until it happens.
	some := func(name string, action func(time.Duration) respproxy.Action) chaos.Havoc {
		return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
			rule := p.Add(action(upTo(rnd, ttl)), 1+rnd.IntN(6), script)
			select {
			case <-rule.Fired():
			case <-time.After(ttl):
			}
			time.Sleep(tryTimeout)
			rule.Release()
			return nil
		}}
	}
	// oneWay drops all requests or all replies.
	oneWay := func(name string, action respproxy.Action) chaos.Havoc {
		return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
			rule := p.Add(action, 0)
			time.Sleep(upTo(rnd, 2*ttl))
			rule.Release()
			p.CutAll() // the dropped messages will not arrive
			return nil
		}}
	}
	held := chaos.Havoc{Name: "requests held back", Do: func(rnd *rand.Rand) error {
		rule := p.Add(respproxy.Hold, 1+rnd.IntN(3), script)
		time.Sleep(upTo(rnd, 2*ttl))
		rule.Release()
		return nil
	}}
	return []chaos.Havoc{
		some("replies dropped", func(time.Duration) respproxy.Action { return respproxy.DropReply }),
		some("requests dropped", func(time.Duration) respproxy.Action { return respproxy.DropRequest }),
		some("requests delayed", respproxy.Delay),
		some("cut after the request", func(time.Duration) respproxy.Action { return respproxy.CutAfterForward }),
		held,
		oneWay("no way to the server", respproxy.DropRequest),
		oneWay("no way back", respproxy.DropReply),
		lasts("black hole", func() { p.Mute() }, p.Unmute),
		lasts("connections refused", func() { p.Refuse(true); p.CutAll() }, func() { p.Refuse(false) }),
		lasts("messages dropped", func() { p.DropPubSub(true) }, func() { p.DropPubSub(false) }),
		{Name: "connections cut", Do: func(*rand.Rand) error { p.CutAll(); return nil }},
	}
}
