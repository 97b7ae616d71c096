package redisroom

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// visits is how many connections check that all lead to one server.
const visits = 8

// oneServer checks that every connection leads to the server that returned info.
func (c *checkup) oneServer(ctx context.Context, info map[string]string) {
	if _, primary := c.store.main.Sentinels(); primary != "" || c.store.main.Cluster() {
		return
	}
	servers := map[string]bool{info["run_id"]: true}
	for range visits {
		reply, err := c.store.main.Visit(ctx, "", "INFO", "server")
		if text, ok := reply.(string); err == nil && ok {
			servers[parseInfo(text)["run_id"]] = true
		}
	}
	c.Judge("server",
		doctor.If(len(servers) > 1, driver.Unsafe, fmt.Sprintf("connections lead to %d servers", len(servers)),
			"each of them grants the same locks", "name one server, its primary, or take a cluster, sentinels or a quorum"),
		doctor.Good("every connection leads to the same one"))
}

// follower is a replica as its primary sees it.
type follower struct {
	addr   string
	online bool
	lag    int // seconds since its last message
}

// parseReplicas reads the fields of INFO about replicas, in their order.
func parseReplicas(info map[string]string) (replicas []follower) {
	for i := 0; ; i++ {
		text, ok := info["slave"+strconv.Itoa(i)]
		if !ok {
			return replicas
		}
		fields := make(map[string]string)
		for field := range strings.SplitSeq(text, ",") {
			name, value, _ := strings.Cut(field, "=")
			fields[name] = value
		}
		r := follower{addr: net.JoinHostPort(fields["ip"], fields["port"]), online: fields["state"] == "online"}
		r.lag, _ = strconv.Atoi(fields["lag"])
		replicas = append(replicas, r)
	}
}

// count returns how many replicas are online, and how many of them sent a message
// recently.
func count(replicas []follower) (online, heard int) {
	for _, r := range replicas {
		if r.online {
			online++
		}
		if r.online && r.lag < silent {
			heard++
		}
	}
	return online, heard
}

// A replica sends a message every second. One that hangs is detected after two, and
// is checked again, since the server may have been busy.
const (
	silent     = 2
	firstLook  = 2200 * time.Millisecond
	secondLook = time.Second
)

// replication compares the connected replicas with the acknowledgements that are wanted.
func (c *checkup) replication(ctx context.Context, node string, info map[string]string) {
	replicas, want := parseReplicas(info), c.store.acks.want.Replicas
	connected, heard := count(replicas)
	c.replicas[node] = connected
	if want > 0 && connected > 0 {
		heard = c.listenTo(ctx, node, connected)
	}
	if info["role"] != "slave" {
		c.Judge("replicas",
			doctor.If(want > connected, driver.Unsafe, fmt.Sprintf("%d of %d replicas that have to acknowledge are connected", connected, want),
				"no lock can be had", "connect replicas, or ask for fewer"),
			doctor.If(want > heard, driver.Unsafe, fmt.Sprintf("%d of %d replicas that have to acknowledge do; the others are connected, and silent", heard, want),
				"no lock can be had", "see why they hang, or ask for fewer"),
			doctor.If(want > 0 && want < connected, driver.Warning, fmt.Sprintf("%d of %d replicas acknowledge", want, connected),
				"a failover to another forgets the latest grants", fmt.Sprintf("ask for replicas=%d, or fence", connected)),
			doctor.If(want < connected, driver.Warning, fmt.Sprintf("%d copy the data, and nobody waits for them", connected),
				"a failover forgets the latest grants", fmt.Sprintf("ask for replicas=%d, or fence, or take a quorum", connected)),
			doctor.If(want > 0, driver.Good, fmt.Sprintf("all %d replicas acknowledge", connected), "", ""))
	}
	for _, r := range replicas {
		if r.online {
			c.promotable(ctx, r.addr)
		}
	}
}

// listenTo returns how many replicas still send messages, after a wait for replicas that
// may have begun to hang.
func (c *checkup) listenTo(ctx context.Context, node string, connected int) (heard int) {
	for _, pause := range []time.Duration{firstLook, secondLook} {
		if !timing.Sleep(ctx, pause) {
			return heard
		}
		text, err := c.ask(ctx, node, "INFO", "replication")
		if err != nil {
			return heard
		}
		if _, now := count(parseReplicas(parseInfo(text))); now > heard {
			heard = now
		}
		if heard >= connected {
			return heard
		}
	}
	return heard
}

// promotable checks whether a replica would keep locks as the primary.
func (c *checkup) promotable(ctx context.Context, addr string) {
	defer func(subject string) { c.Subject = subject }(c.Subject)
	c.Subject = addr
	reply, err := c.store.main.Visit(ctx, addr, "INFO", "memory")
	text, ok := reply.(string)
	if err != nil || !ok {
		c.Found(driver.Notice, "eviction", "the replica cannot be looked at", "it may throw away locks once it is promoted", "see its maxmemory-policy")
		return
	}
	info := parseInfo(text)
	policy := info["maxmemory_policy"]
	c.Judge("eviction", doctor.If(policy != "noeviction" && info["maxmemory"] != "0", driver.Warning, "maxmemory-policy of a replica is "+policy,
		"it throws away locks that are held once it is promoted", "set its maxmemory-policy to noeviction"))
}
