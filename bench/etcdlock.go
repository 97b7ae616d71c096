package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
)

// etcdLockService is etcd's own lock service: a server keeps the queue, as ours
// does, and a client calls it by gRPC. Its locks live as long as an etcd lease.
func etcdLockService() contender {
	return etcdLockBy("etcd's lock service, by gRPC", func(p *etcdProcess, _ string) lockService {
		return grpcLocks{v3lockpb.NewLockClient(p.client.ActiveConnection())}
	})
}

// etcdLockGateway is the same service by HTTP and JSON, through etcd's gateway.
func etcdLockGateway() contender {
	return etcdLockBy("etcd's lock service, by HTTP", func(_ *etcdProcess, addr string) lockService {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 2*serviceCrowd
		return &gatewayLocks{&http.Client{Transport: transport}, addr}
	})
}

func etcdLockBy(name string, open func(p *etcdProcess, addr string) lockService) contender {
	c := etcdPeer()
	sessions := c.open
	c.name = name
	c.open = func(addr string, s settings) (process, error) {
		p, err := sessions(addr, s)
		if err != nil {
			return nil, err
		}
		e := p.(*etcdProcess)
		return &etcdLocks{e, open(e, addr)}, nil
	}
	return c
}

// lockService takes a lock, for as long as a lease lives, and releases it.
type lockService interface {
	lock(ctx context.Context, name []byte, lease int64) (key []byte, err error)
	unlock(ctx context.Context, key []byte) error
	close()
}

// etcdLocks uses the sessions of etcdProcess for their leases: the service identifies
// callers by lease.
type etcdLocks struct {
	*etcdProcess
	service lockService
}

// Lock implements [process].
func (p *etcdLocks) Lock(ctx context.Context, name string) (held, error) {
	w, s, err := p.enlist(name)
	if err != nil {
		return nil, err
	}
	key, err := p.service.lock(ctx, []byte(name), int64(s.Lease()))
	if err != nil {
		p.leave(w)
		return nil, err
	}
	return releaser(func() error {
		defer p.leave(w)
		return p.service.unlock(context.Background(), key)
	}), nil
}

// Close implements [process].
func (p *etcdLocks) Close() error {
	p.service.close()
	return p.etcdProcess.Close()
}

type grpcLocks struct{ client v3lockpb.LockClient }

func (g grpcLocks) lock(ctx context.Context, name []byte, lease int64) ([]byte, error) {
	res, err := g.client.Lock(ctx, &v3lockpb.LockRequest{Name: name, Lease: lease})
	return res.GetKey(), err
}

func (g grpcLocks) unlock(ctx context.Context, key []byte) error {
	_, err := g.client.Unlock(ctx, &v3lockpb.UnlockRequest{Key: key})
	return err
}

func (grpcLocks) close() {}

type gatewayLocks struct {
	client *http.Client
	addr   string
}

func (g *gatewayLocks) lock(ctx context.Context, name []byte, lease int64) ([]byte, error) {
	var answer struct {
		Key []byte `json:"key"`
	}
	err := g.post(ctx, "/v3/lock/lock", map[string]any{"name": name, "lease": fmt.Sprint(lease)}, &answer)
	return answer.Key, err
}

func (g *gatewayLocks) unlock(ctx context.Context, key []byte) error {
	var answer struct{}
	return g.post(ctx, "/v3/lock/unlock", map[string]any{"key": key}, &answer)
}

func (g *gatewayLocks) post(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.addr+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := g.client.Do(req)
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

func (g *gatewayLocks) close() { g.client.CloseIdleConnections() }
