package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

func TestDriver_DoesNotWaitForTheApplicationsPool(t *testing.T) {
	s := redistest.Start(t)
	app := application(t, &redis.Options{Addr: s.Addr(), PoolSize: 2, MaxActiveConns: 2, PoolTimeout: time.Minute})
	d := over(t, app)
	ctx, cancel := context.WithCancel(context.Background())
	var blocked sync.WaitGroup
	for range 2 {
		blocked.Go(func() { app.BLPop(ctx, time.Minute, "nothing") })
	}
	defer blocked.Wait()
	defer cancel()
	defer s.Client().RPush(ctx, "nothing", 1, 2)
	for s.Info(t, "clients")["blocked_clients"] != "2" {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	acquire(t, d, request("k", "a"))
	d.Renew(t.Context(), []driver.Ref{{Key: "k", ID: "a", TTL: 10 * time.Second}}, func(_ int, r driver.Reply, err error) {
		if err != nil || r.State != driver.Granted {
			t.Errorf("renew: %+v, %v", r, err)
		}
	})
	release(t, d, "k", "a")
	if took := time.Since(start); took > 20*time.Second {
		live.Late(t, "a lock took %v while the application's pool was exhausted", took)
	}
}

func TestDriver_CloseLeavesTheClientOpen(t *testing.T) {
	s := redistest.Start(t)
	app := application(t, &redis.Options{Addr: s.Addr()})
	d := over(t, app)
	acquire(t, d, request("k", "a"))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := app.Ping(context.Background()).Err(); err != nil {
		t.Errorf("the application's client after Close: %v", err)
	}
}

func TestNew_WorksWithFailoverAndClusterClients(t *testing.T) {
	live.Test(t)
	sentinel := redistest.StartSentinel(t)
	cluster := redistest.StartCluster(t, 3)
	for name, client := range map[string]redis.UniversalClient{
		"failover": redis.NewFailoverClient(&redis.FailoverOptions{
			MasterName: redistest.PrimaryName, SentinelAddrs: []string{sentinel.Sentinel.Addr()},
		}),
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Cleanup(func() { _ = client.Close() })
			d := over(t, client)
			for i := range 10 {
				acquire(t, d, request(fmt.Sprint("k", i), "a"))
				release(t, d, fmt.Sprint("k", i), "a")
			}
		})
	}
}

func TestNew_RefusesWhatCannotKeepLocks(t *testing.T) {
	client := application(t, &redis.Options{})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "localhost:1"}})
	defer ring.Close()
	for name, make := range map[string]func() (*redisdriver.Driver, error){
		"nil":              func() (*redisdriver.Driver, error) { return redisdriver.New(nil) },
		"typed nil":        func() (*redisdriver.Driver, error) { return redisdriver.New((*redis.Client)(nil)) },
		"typed nil, other": func() (*redisdriver.Driver, error) { return redisdriver.New((*redis.ClusterClient)(nil)) },
		"ring":             func() (*redisdriver.Driver, error) { return redisdriver.New(ring) },
		"prefix":           func() (*redisdriver.Driver, error) { return redisdriver.New(client, redisdriver.WithPrefix("a\n")) },
		"timeout":          func() (*redisdriver.Driver, error) { return redisdriver.New(client, redisdriver.WithTimeout(0)) },
		"no replicas": func() (*redisdriver.Driver, error) {
			return redisdriver.New(client, redisdriver.WithReplicas(0, time.Second))
		},
		"replica timeout": func() (*redisdriver.Driver, error) {
			return redisdriver.New(client, redisdriver.WithReplicas(1, 2*time.Second))
		},
		"url": func() (*redisdriver.Driver, error) { return redisdriver.Open("ftp://h") },
		"timeout, with a url": func() (*redisdriver.Driver, error) {
			return redisdriver.Open("redis://localhost:1", redisdriver.WithTimeout(time.Hour))
		},
	} {
		if _, err := make(); !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func TestOpen_OptionsCountMoreThanTheURL(t *testing.T) {
	d := open(t, "redis://localhost:1?timeout=3s", redisdriver.WithTimeout(4*time.Second))
	if limit := d.CallTimeout(); limit != 4*time.Second {
		t.Errorf("calls end after %v, want 4s", limit)
	}
}
