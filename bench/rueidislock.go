package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockTuned is rueidislock with the settings that its README recommends for one server.
func rueidislockTuned() contender {
	return rueidislockWith("rueidislock, tuned", 1, true)
}

// rueidislockDefault is rueidislock with its defaults: three keys for a lock.
func rueidislockDefault() contender {
	return rueidislockWith("rueidislock, defaults", 2, false)
}

func rueidislockWith(name string, majority int32, noLoop bool) contender {
	return contender{name: name, client: rueidisClient, wire: []string{"evalsha", "eval"}, open: func(addr string, s settings) (process, error) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
			KeyValidity:    s.ttl,
			ExtendInterval: s.ttl / 3,
			KeyMajority:    majority,
			NoLoopTracking: noLoop,
		})
		if err != nil {
			return nil, err
		}
		return &rueidislockProcess{locker, int(2*majority - 1)}, nil
	}}
}

type rueidislockProcess struct {
	locker rueidislock.Locker
	keys   int
}

func (p *rueidislockProcess) Lock(ctx context.Context, key string) (held, error) {
	ctx, cancel, err := p.locker.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return &rueidislockHeld{ctx, cancel}, nil
}

func (p *rueidislockProcess) Crash(ctx context.Context, key string, ttl time.Duration) error {
	client := p.locker.Client()
	for i := range p.keys {
		cmd := client.B().Set().Key(fmt.Sprintf("rueidislock:%d:%s", i, key)).Value("crashed").PxMilliseconds(ttl.Milliseconds()).Build()
		if err := client.Do(ctx, cmd).Error(); err != nil {
			return err
		}
	}
	return nil
}

func (p *rueidislockProcess) Close() error {
	p.locker.Close()
	return nil
}

type rueidislockHeld struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (h *rueidislockHeld) Release() error {
	err := h.ctx.Err()
	h.cancel()
	return err
}
