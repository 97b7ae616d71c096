package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
)

// etcdLock takes a lock for a session, and returns its release.
type etcdLock func(ctx context.Context, s *concurrency.Session, key string) (unlock func(context.Context) error, err error)

// etcdPeer is etcd's concurrency package.
func etcdPeer() contender {
	return etcdBy("etcd", func(*etcdProcess, string) etcdLock {
		return func(ctx context.Context, s *concurrency.Session, key string) (func(context.Context) error, error) {
			m := concurrency.NewMutex(s, key)
			return m.Unlock, m.Lock(ctx)
		}
	})
}

// etcdLockService is etcd's own lock service: a server keeps the queue, as ours
// does, and a client calls it by gRPC. It identifies callers by the leases of their sessions.
func etcdLockService() contender {
	return etcdBy("etcd's lock service, by gRPC", func(p *etcdProcess, _ string) etcdLock {
		client := v3lockpb.NewLockClient(p.client.ActiveConnection())
		return func(ctx context.Context, s *concurrency.Session, key string) (func(context.Context) error, error) {
			res, err := client.Lock(ctx, &v3lockpb.LockRequest{Name: []byte(key), Lease: int64(s.Lease())})
			return func(ctx context.Context) error {
				_, err := client.Unlock(ctx, &v3lockpb.UnlockRequest{Key: res.GetKey()})
				return err
			}, err
		}
	})
}

// etcdLockGateway is the same service by HTTP and JSON, through etcd's gateway.
func etcdLockGateway() contender {
	return etcdBy("etcd's lock service, by HTTP", func(p *etcdProcess, addr string) etcdLock {
		return func(ctx context.Context, s *concurrency.Session, key string) (func(context.Context) error, error) {
			var answer struct {
				Key []byte `json:"key"`
			}
			err := p.post(ctx, addr+"/v3/lock/lock", map[string]any{"name": []byte(key), "lease": fmt.Sprint(int64(s.Lease()))}, &answer)
			return func(ctx context.Context) error {
				return p.post(ctx, addr+"/v3/lock/unlock", map[string]any{"key": answer.Key}, new(struct{}))
			}, err
		}
	})
}

// etcdBy opens processes with sessions. A session has one lease for all its
// locks, but can wait for a lock only once: a second waiter in the same
// process needs another session.
func etcdBy(name string, lock func(p *etcdProcess, addr string) etcdLock) contender {
	return contender{name: name, client: etcdClient, open: func(addr string, s settings) process {
		client := need(clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}))
		web := http.DefaultTransport.(*http.Transport).Clone()
		web.MaxIdleConns, web.MaxIdleConnsPerHost = 0, 2*serviceCrowd
		p := &etcdProcess{client: client, web: &http.Client{Transport: web}, ttl: s.ttl, busy: make(map[want]bool)}
		p.lock = lock(p, addr)
		for i := range max(1, s.waiters) {
			_ = need(p.session(i))
		}
		return p
	}}
}

type etcdProcess struct {
	client *clientv3.Client
	web    *http.Client
	lock   etcdLock
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
	unlock, err := p.lock(ctx, s, key)
	if err != nil {
		p.leave(w)
		return nil, err
	}
	return releaser(func() error {
		defer p.leave(w)
		return unlock(context.Background())
	}), nil
}

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

func (p *etcdProcess) post(ctx context.Context, url string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := p.web.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s: %s", res.Status, text)
	}
	return json.Unmarshal(text, answer)
}

func (p *etcdProcess) Close() {
	p.web.CloseIdleConnections()
	for _, s := range p.sessions {
		_ = s.Close()
	}
	_ = p.client.Close()
}
