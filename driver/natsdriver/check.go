package natsdriver

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// Check implements [driver.Checker]. It needs no more rights than locks do.
func (d *Driver) Check(ctx context.Context) (driver.Report, error) {
	c := &checkup{cfg: d.table.cfg}
	ctx, cancel := context.WithTimeout(ctx, d.table.timeout)
	defer cancel()
	nc, err := d.table.conn(ctx)
	if err != nil {
		return c.Report, unavailable(err)
	}
	before := time.Now()
	err = d.table.call(ctx, "INFO", struct{}{}, &c.info)
	ahead, took := c.TimeStamp.Sub(before), time.Since(before)
	if code(err) == noStream {
		c.missing()
		return c.Report, nil
	}
	if err != nil {
		return c.Report, err
	}
	c.server(nc)
	c.replicas()
	c.clock(ahead, took)
	c.bucket(nc)
	return c.Report, nil
}

// checkup is one look at a store.
type checkup struct {
	doctor.Checkup
	info
	cfg options
}

// info is the answer to a request for the stream's information.
type info struct {
	failure
	jetstream.StreamInfo
}

func (c *checkup) missing() {
	if c.cfg.replicas > 0 {
		c.Judge("bucket", doctor.Good(fmt.Sprintf("%q is created by the first call, with %d replicas", c.cfg.bucket, c.cfg.replicas)))
		return
	}
	c.Found(driver.Unsafe, "bucket", fmt.Sprintf("there is no bucket %q", c.cfg.bucket), "no lock can be had",
		"open the store with create=true, or `nats kv add "+c.cfg.bucket+" --replicas=3 --marker-ttl=1h`")
}

func (c *checkup) server(nc *nats.Conn) {
	data := fmt.Sprint(c.Config.Name, "/", c.Created.UnixNano())
	if c.Cluster == nil || c.Cluster.Leader == "" {
		c.Nodes = []driver.Node{{Name: nc.ConnectedAddr(), Server: nc.ConnectedServerId(), Data: data}}
	} else {
		for _, peer := range append(c.Cluster.Replicas, &jetstream.PeerInfo{Name: c.Cluster.Leader}) {
			c.Nodes = append(c.Nodes, driver.Node{Name: peer.Name, Server: c.Cluster.Name + "/" + peer.Name, Data: data})
		}
	}
	version := nc.ConnectedServerVersion()
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // 0 is too old
	c.Judge("version",
		doctor.If(major < 2 || major == 2 && minor < 11, driver.Unsafe, "nats-server "+version, "records need a time to live of their own",
			"take nats-server 2.11 or later"),
		doctor.Good("nats-server "+version))
}

// replicas reports which locks the loss of a server loses.
func (c *checkup) replicas() {
	n := c.Config.Replicas
	var behind string
	if c.Cluster != nil {
		for _, peer := range c.Cluster.Replicas {
			if peer.Offline || !peer.Current {
				behind = peer.Name
			}
		}
	}
	c.Judge("replicas",
		doctor.If(n == 1, driver.Notice, "one server keeps the bucket",
			"while it is away no lock can be had, and the loss of its disk loses all locks",
			"take a cluster of three servers, and `nats stream edit "+c.Config.Name+" --replicas=3`"),
		doctor.If(n%2 == 0, driver.Warning, fmt.Sprintf("%d servers keep the bucket", n),
			"the loss of half of them stops all locks", "take 3 or 5 replicas"),
		doctor.If(behind != "", driver.Warning, "the replica "+behind+" is offline or behind", "the loss of another server may stop all locks",
			"restart it, or wait until it has caught up"),
		doctor.Good(fmt.Sprintf("%d servers keep the bucket", n)))
	const why = "two clients may hold one lock after it"
	c.Judge("storage",
		doctor.If(c.Config.Storage == jetstream.MemoryStorage && n == 1, driver.Unsafe, "the bucket is in memory on one server",
			"a restart forgets all locks; "+why, "create a bucket with file storage"),
		doctor.If(c.Config.Storage == jetstream.MemoryStorage, driver.Warning, "the bucket is in memory",
			"a restart of most servers at once forgets all locks; "+why, "create a bucket with file storage"),
		doctor.If(c.Config.PersistMode == jetstream.AsyncPersistMode, driver.Unsafe,
			"writes are acknowledged before they are written (persist_mode async)",
			"a crash of the server forgets the last locks; "+why, "create a bucket without it"),
		doctor.If(true, driver.Notice, "the bucket is in files; whether writes are synced cannot be seen from here",
			"by default a power failure of most replicas at once, or of the only one, forgets the locks of the last two minutes",
			"set sync_interval: always in the jetstream block of each server, if that matters"))
}

// bearable is the difference of clocks that the drift of a lease of half a minute covers.
const bearable = 250 * time.Millisecond

// clock compares the leader's clock with ours.
func (c *checkup) clock(ahead, took time.Duration) {
	ahead -= took / 2
	what := fmt.Sprintf("the leader's clock differs from ours by %v", ahead.Abs().Round(time.Millisecond))
	c.Judge("clock",
		doctor.If(ahead.Abs() > bearable+took, driver.Warning, what,
			"if the servers' clocks differ by as much, a change of the leader may end leases early, and two clients may hold one lock",
			"synchronize the clocks of all servers"),
		doctor.Good(what))
}

// bucket looks for settings that remove records, or that refuse them.
func (c *checkup) bucket(nc *nats.Conn) {
	cfg := c.Config
	c.Judge("bucket",
		doctor.If(cfg.Mirror != nil || len(cfg.Sources) > 0, driver.Unsafe, "the bucket is a copy of another one",
			"the original decides about a lock", "name the original"),
		doctor.If(cfg.NoAck || cfg.Sealed, driver.Unsafe, "the bucket acknowledges no writes, or is sealed",
			"no lock can be had", "create another one"),
		doctor.If(!cfg.AllowMsgTTL, driver.Unsafe, "the bucket has no message TTLs", "no lock can be had, since records would stay for ever",
			"create another one with create=true, or with --marker-ttl=1h"),
		doctor.If(cfg.MaxMsgsPerSubject != 1, driver.Unsafe, "the bucket keeps old revisions",
			"no lock can be had, since an old record may outlive the last", "`nats stream edit "+cfg.Name+" --max-msgs-per-subject=1`"),
		doctor.If(cfg.MaxAge > 0, driver.Unsafe, fmt.Sprintf("the bucket forgets records after %v", cfg.MaxAge),
			"a lock without renewals is forgotten while it is held", "`nats stream edit "+cfg.Name+" --max-age=0`"),
		doctor.If(cfg.Discard == jetstream.DiscardOld && (cfg.MaxMsgs > 0 || cfg.MaxBytes > 0), driver.Unsafe,
			"a full bucket forgets its oldest records", "a lock is forgotten while it is held",
			"`nats stream edit "+cfg.Name+" --discard=new`, or remove its limits"),
		doctor.If(cfg.MaxMsgs > 0 || cfg.MaxBytes > 0, driver.Warning, "the bucket is limited",
			"when it is full no lock can be had", "remove its limits"),
		doctor.Good(fmt.Sprintf("%q has no limits", c.cfg.bucket)))
	limit := nc.MaxPayload()
	if cfg.MaxMsgSize > 0 {
		limit = min(limit, int64(cfg.MaxMsgSize))
	}
	what := fmt.Sprintf("a record may have %d KB, a queue of some %d waiters", limit>>10, limit/perWaiter)
	c.Judge("record",
		doctor.If(limit < 256<<10, driver.Warning, what, "more waiters are refused", "raise max_payload, and the bucket's maximum value size"),
		doctor.Good(what))
}

// perWaiter is about how many bytes of a record a waiter takes.
const perWaiter = 125
