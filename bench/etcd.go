package main

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
)

// etcdMessage is the name under which all messages to etcd are counted.
const etcdMessage = "message"

// etcdPeer is etcd's concurrency package. A session has one lease for all its
// locks, but can wait for a lock only once: a second waiter in the same
// process needs another session.
func etcdPeer() contender {
	return contender{name: "etcd", client: etcdClient, wire: []string{etcdMessage}, open: func(addr string, s settings) (process, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		p := &etcdProcess{client: client, ttl: s.ttl, busy: make(map[want]bool)}
		for i := range max(1, s.waiters) {
			if _, err := p.session(i); err != nil {
				_ = p.Close()
				return nil, err
			}
		}
		return p, nil
	}}
}

type etcdProcess struct {
	client *clientv3.Client
	ttl    time.Duration

	mu       sync.Mutex
	sessions []*concurrency.Session
	busy     map[want]bool
}

// want is a session that waits for a lock, or holds it.
type want struct {
	key     string
	session int
}

// session returns the i-th session. All sessions before it exist.
func (p *etcdProcess) session(i int) (*concurrency.Session, error) {
	if i == len(p.sessions) {
		seconds := int((p.ttl + time.Second - 1) / time.Second)
		s, err := concurrency.NewSession(p.client, concurrency.WithTTL(seconds))
		if err != nil {
			return nil, err
		}
		p.sessions = append(p.sessions, s)
	}
	return p.sessions[i], nil
}

// enlist finds a session that does not use the key.
func (p *etcdProcess) enlist(key string) (want, *concurrency.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := want{key: key}
	for p.busy[w] {
		w.session++
	}
	s, err := p.session(w.session)
	if err == nil {
		p.busy[w] = true
	}
	return w, s, err
}

func (p *etcdProcess) leave(w want) {
	p.mu.Lock()
	delete(p.busy, w)
	p.mu.Unlock()
}

func (p *etcdProcess) Lock(ctx context.Context, key string) (held, error) {
	w, s, err := p.enlist(key)
	if err != nil {
		return nil, err
	}
	m := concurrency.NewMutex(s, key)
	if err := m.Lock(ctx); err != nil {
		p.leave(w)
		return nil, err
	}
	return releaser(func() error {
		defer p.leave(w)
		return m.Unlock(context.Background())
	}), nil
}

// Crash implements [process]. A session lives for at least some seconds, so it
// cannot be compared.
func (p *etcdProcess) Crash(context.Context, string, time.Duration) error { return errUnfit }

// Read implements [readWriter] with etcd's recipe. Its callers may share a
// session.
func (p *etcdProcess) Read(_ context.Context, key string) (held, error) {
	m := recipe.NewRWMutex(p.sessions[0], key)
	return releaser(m.RUnlock), m.RLock()
}

func (p *etcdProcess) Write(_ context.Context, key string) (held, error) {
	m := recipe.NewRWMutex(p.sessions[0], key)
	return releaser(m.Unlock), m.Lock()
}

func (p *etcdProcess) Close() error {
	for _, s := range p.sessions {
		_ = s.Close()
	}
	return p.client.Close()
}
