package main

import (
	"context"
	"fmt"
	"time"

	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

// fiveNodes is the number of servers of a quorum that is compared with a single
// server.
const fiveNodes = 5

// sized is a contender on one server or on several of them.
type sized struct {
	contender
	of      string // the library, or the bare client
	several bool
	fenced  bool
}

// quorumFive measures the time of a free lock on five servers compared with one of
// them, with fencing tokens and without. All of them compete with the client for
// the CPUs of this machine.
func quorumFive(ctx context.Context, b *bench) (*table, error) {
	return quorumFiveAt(ctx, b, 0)
}

// quorumFiveFar is the same with servers so far away that the machine is idle while
// the client waits: the number of its waits decides.
func quorumFiveFar(ctx context.Context, b *bench) (*table, error) {
	return quorumFiveAt(ctx, b, 2*time.Millisecond)
}

func quorumFiveAt(ctx context.Context, b *bench, away time.Duration) (*table, error) {
	nodes, addrs, err := startServers(ctx, fiveNodes)
	if err != nil {
		return nil, err
	}
	defer closeServers(nodes)
	title := fmt.Sprintf("Quorum of %d servers next to one of them: lock and unlock, one goroutine", fiveNodes)
	if away > 0 {
		title += fmt.Sprintf(", each server %v away", away)
		for i, addr := range addrs {
			f, err := newFar(addr, away)
			if err != nil {
				return nil, err
			}
			defer f.close()
			addrs[i] = f.addr()
		}
	}
	var rows []sized
	var all []contender
	for _, s := range sizes(addrs) {
		if b.who.MatchString(s.name) {
			rows, all = append(rows, s), append(all, s.contender)
		}
	}
	procs, err := b.openAll(all, settings{ttl: 30 * time.Second})
	if err != nil {
		return nil, err
	}
	defer closeAll(procs)
	p50 := grid(all)
	for round := range b.rounds + 1 { // the first one warms up
		for i, p := range procs {
			took, err := b.pairs(ctx, p, fmt.Sprintf("five:%d:%d", i, round), nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", all[i].name, err)
			}
			if round > 0 {
				p50[i] = append(p50[i], median(each(took, micros)))
			}
		}
	}
	t := newTable(title,
		column{Name: "p50 µs", Digits: 0},
		column{Name: "× one server, with tokens", Digits: 2, AtMost: 3}, column{Name: "× one server, without", Digits: 2, AtMost: 2})
	one := make(map[string][]float64)
	for i, s := range rows {
		switch {
		case !s.several:
			one[s.of] = p50[i]
			t.add(s.contender, p50[i], nil, nil)
		case s.fenced:
			t.add(s.contender, p50[i], ratios(p50[i], one[s.of]), nil)
		default:
			t.add(s.contender, p50[i], nil, ratios(p50[i], one[s.of]))
		}
	}
	return t, nil
}

// sizes returns the contenders, each on one server first.
func sizes(addrs []string) []sized {
	one := func(c contender) sized {
		open, of := c.open, c.name
		c.name += ", one server"
		c.open = func(_ string, s settings) (process, error) { return open(addrs[0], s) }
		return sized{contender: c, of: of}
	}
	five := func(c contender) sized {
		of := c.name
		c.name += ", five"
		return sized{contender: c, of: of, several: true}
	}
	fenced := func(c contender) sized {
		s := five(c)
		s.name, s.fenced = s.name+", with tokens", true
		return s
	}
	plain := func(c contender) sized {
		s := five(c)
		s.name += ", without"
		return s
	}
	without := quorumdriver.WithoutFencing()
	return []sized{
		one(rawRueidis()), five(quorumRaw(addrs)),
		one(leaseholdGoRedis()), fenced(quorumLeaseholdGoRedis(addrs)), plain(quorumLeaseholdGoRedis(addrs, without)),
		one(leaseholdRueidis()), fenced(quorumLeaseholdRueidis(addrs)), plain(quorumLeaseholdRueidis(addrs, without)),
		one(redsyncPeer()), five(quorumRedsync(addrs)),
	}
}
