package main

import (
	"context"
	"fmt"
	"math"
	"syscall"
	"time"
)

// stall measures an acquire that is in progress while the server stops answering
// for half a second: how long after that it returns, and whether it returns.
func stall(ctx context.Context, b *bench) (*table, error) {
	const pause = 500 * time.Millisecond
	all := b.freeContenders()
	late, never := grid(all), grid(all)
	for round := range b.crowds {
		for i, c := range all {
			d, err := stallOnce(ctx, b, c, fmt.Sprintf("stall:%d:%d", round, i), pause)
			lost := 0.0
			if err != nil {
				if err := excuse(c, err); err != nil {
					return nil, err
				}
				lost = 1
			}
			late[i], never[i] = append(late[i], d), append(never[i], lost)
		}
	}
	t := newTable(fmt.Sprintf("The server stalls for %v during an acquire", pause),
		column{Name: "answer after the stall, ms", Digits: 1, AtMost: 5}, column{Name: fmt.Sprintf("acquires of %d without an answer in %v", b.crowds, b.patience), Digits: 0, None: true})
	for i, c := range all {
		t.add(c, late[i], []float64{sum(never[i])})
	}
	return t, nil
}

func stallOnce(ctx context.Context, b *bench, c contender, key string, pause time.Duration) (float64, error) {
	p, err := b.open(c, settings{ttl: 30 * time.Second})
	if err != nil {
		return math.NaN(), err
	}
	defer p.Close()
	ctx, cancel := b.limited(ctx, pause)
	defer cancel()
	if err := lockOnce(ctx, p, key); err != nil { // connections are open
		return math.NaN(), err
	}
	if err := b.signal(c, syscall.SIGSTOP); err != nil {
		return math.NaN(), err
	}
	time.Sleep(20 * time.Millisecond) // its threads stop one by one
	goes := make(chan time.Time, 1)
	time.AfterFunc(pause, func() {
		goes <- time.Now()
		_ = b.signal(c, syscall.SIGCONT)
	})
	h, err := p.Lock(ctx, key)
	got := time.Now()
	again := <-goes
	if err != nil {
		return math.NaN(), err
	}
	return millis(got.Sub(again)), h.Release()
}

// signal sends a signal to the server of c.
func (b *bench) signal(c contender, s syscall.Signal) error {
	if c.client == etcdClient {
		return b.etcd.cmd.Process.Signal(s)
	}
	return b.srv.cmd.Process.Signal(s)
}

func sum(values []float64) (total float64) {
	for _, v := range values {
		total += v
	}
	return total
}
