package redisroom

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// Check implements [driver.Checker]. It asks with INFO, CONFIG GET, CLUSTER INFO, TIME
// and SCAN. A command that the user may not run is a finding.
func (s *Store) Check(ctx context.Context) (driver.Report, error) {
	nodes, err := s.main.Nodes(ctx)
	if err != nil {
		return driver.Report{}, classify(err)
	}
	c := &checkup{store: s, replicas: make(map[string]int)}
	for _, node := range nodes {
		if err := c.node(ctx, node); err != nil {
			return c.Report, err
		}
	}
	c.Subject = ""
	if s.main.Cluster() {
		c.cluster(ctx, nodes)
	}
	if addrs, primary := s.main.Sentinels(); primary != "" {
		c.sentinels(ctx, addrs, primary)
	}
	return c.Report, nil
}

// checkup is one check of a store.
type checkup struct {
	doctor.Checkup
	store *Store
	// replicas holds the number of replicas of each server that reported it.
	replicas map[string]int
}

// ask sends a command to a server and returns the text of its answer.
func (c *checkup) ask(ctx context.Context, node string, words ...string) (string, error) {
	reply, err := c.store.main.Ask(ctx, node, words...)
	if err != nil {
		return "", classify(err)
	}
	text, ok := reply.(string)
	if !ok {
		return "", errReply
	}
	return text, nil
}

// node checks one server. The error means that it did not answer; with several servers
// that is a finding.
func (c *checkup) node(ctx context.Context, node string) error {
	if c.store.main.Cluster() {
		c.Subject = node
	}
	text, err := c.ask(ctx, node, "INFO")
	var reply ReplyError
	switch {
	case err != nil && isRight(err):
		c.Found(driver.Warning, "rights", "the user may not ask for INFO", "role, eviction and persistence are not known", "grant +info to look at them")
	case err != nil && c.Subject != "" && !errors.As(err, &reply):
		c.Found(driver.Unsafe, "reach", "does not answer: "+err.Error(), "its locks are unavailable", "bring it back, or have its slots moved")
		return nil
	case err != nil:
		return err
	}
	info := parseInfo(text)
	c.Nodes = append(c.Nodes, driver.Node{Name: c.name(ctx, node), Server: info["run_id"], Data: info["master_replid"]})
	if text != "" {
		c.version(info)
		c.role(info)
		c.oneServer(ctx, info)
		c.replication(ctx, node, info)
		c.eviction(info)
		c.persistence(ctx, node, info)
	}
	c.clock(ctx, node)
	c.lasting(ctx, node)
	return nil
}

// isRight reports whether a node has refused a command for a missing right, or does not have it.
func isRight(err error) bool {
	text := err.Error()
	return strings.Contains(text, "NOPERM") || strings.Contains(text, unknown) || strings.Contains(text, "no permissions")
}

// name returns the address of a node, or its own view of it if the client has none.
func (c *checkup) name(ctx context.Context, node string) string {
	if node != Primary {
		return node
	}
	text, _ := c.ask(ctx, node, "CLIENT", "INFO")
	for field := range strings.FieldsSeq(text) {
		if addr, ok := strings.CutPrefix(field, "laddr="); ok {
			return addr
		}
	}
	return node
}

func (c *checkup) version(info map[string]string) {
	name, version := "Redis", info["redis_version"]
	least := "7.0"
	if v := info["valkey_version"]; v != "" {
		name, version, least = "Valkey", v, "7.2"
	}
	c.Judge("version",
		doctor.If(olderThan(version, least), driver.Unsafe, name+" "+version, "the scripts need features of a later version", "take Redis 7.0, Valkey 7.2 or later"),
		doctor.Good(name+" "+version))
}

// olderThan compares versions of numbers and dots. A version that cannot be read is not
// older.
func olderThan(version, least string) bool {
	have, want := strings.Split(version, "."), strings.Split(least, ".")
	for i := range want {
		if i >= len(have) {
			return false
		}
		h, err1 := strconv.Atoi(have[i])
		w, err2 := strconv.Atoi(want[i])
		if err1 != nil || err2 != nil || h != w {
			return err1 == nil && err2 == nil && h < w
		}
	}
	return false
}

func (c *checkup) role(info map[string]string) {
	c.Judge("role",
		doctor.If(info["role"] == "slave", driver.Unsafe, fmt.Sprintf("is a replica of %s:%s", info["master_host"], info["master_port"]),
			"locks have to be kept where they are taken", "connect to the primary, or use a sentinel or cluster URL"),
		doctor.If(info["loading"] == "1", driver.Unsafe, "loads its data", "no lock can be acquired until it has finished", "wait"),
		doctor.Good("is a primary"))
}

func (c *checkup) eviction(info map[string]string) {
	policy := info["maxmemory_policy"]
	const remedy = "set maxmemory-policy to noeviction"
	c.Judge("eviction",
		doctor.If(policy == "", driver.Warning, "maxmemory-policy is not reported", "the server may throw away locks that are held", remedy),
		doctor.If(policy != "noeviction" && info["maxmemory"] == "0", driver.Warning, "maxmemory-policy is "+policy+", without effect because maxmemory is not set",
			"locks that are held are thrown away once it is", remedy),
		doctor.If(policy != "noeviction", driver.Unsafe, "maxmemory-policy is "+policy, "the server throws away locks that are held when memory is short", remedy),
		doctor.Good("maxmemory-policy is noeviction"))
	used, _ := strconv.ParseFloat(info["used_memory"], 64)
	limit, _ := strconv.ParseFloat(info["maxmemory"], 64)
	c.Judge("memory", doctor.If(limit > 0 && used > 0.9*limit, driver.Warning, fmt.Sprintf("%.0f%% of maxmemory is used", 100*used/limit),
		"locks are refused when it is full", "raise maxmemory"))
}

// persistence reports which data a restart of the server loses.
func (c *checkup) persistence(ctx context.Context, node string, info map[string]string) {
	fsync := "everysec"
	if reply, err := c.store.main.Ask(ctx, node, "CONFIG", "GET", "appendfsync"); err == nil {
		if pair, ok := reply.([]any); ok && len(pair) == 2 {
			fsync, _ = pair[1].(string)
		}
	}
	const remedy = "set appendonly to yes and appendfsync to always, or keep a server down for the longest TTL before restarting it, or fence"
	c.Judge("persistence",
		doctor.If(info["aof_enabled"] != "1", driver.Warning, "writes are not saved one by one", "a restart loses held locks", remedy),
		doctor.If(fsync != "always", driver.Notice, "appendfsync is "+fsync, "a crash loses grants of the last second or more", remedy),
		doctor.Good("every write is saved before it is answered"))
	c.Judge("persistence", doctor.If(info["rdb_last_bgsave_status"] == "err" || info["aof_last_write_status"] == "err", driver.Warning,
		"the last attempt to save failed", "the server may refuse writes", "see its log"))
}

// Sampling of the server's clock.
const (
	clockSamples = 12
	clockPause   = 15 * time.Millisecond
	maxStep      = 20 * time.Millisecond
	maxOffset    = time.Minute
)

// clock compares the server's clock with the local clock, which is never set. The server
// read its clock between question and answer, so each reading bounds the difference. If
// the bounds do not overlap, the server's clock was stepped.
func (c *checkup) clock(ctx context.Context, node string) {
	start := time.Now()
	local := func() time.Time { return start.Round(0).Add(time.Since(start)) }
	least, most, offset := time.Duration(math.MaxInt64), time.Duration(math.MinInt64), time.Duration(0)
	for range clockSamples {
		before := local()
		server, err := c.time(ctx, node)
		after := local()
		if err != nil {
			c.Found(driver.Warning, "clock", "cannot be read: "+err.Error(), "tokens and times are made from it", "grant +time")
			return
		}
		low, high := server.Sub(after), server.Sub(before)
		least, most, offset = min(least, high), max(most, low), (low+high)/2
		time.Sleep(clockPause)
	}
	step := most - least
	c.Judge("clock",
		doctor.If(step > maxStep, driver.Warning, fmt.Sprintf("moved by %v within %v", step.Round(time.Millisecond), clockSamples*clockPause),
			"leases are counted wrong by as much", "have the clocks of this machine and the server slewed, not stepped"),
		doctor.If(offset.Abs() > maxOffset, driver.Warning, fmt.Sprintf("is off this machine's by %v", offset.Round(time.Second)),
			"tokens may fall when another server with a right clock takes over", "set the clocks by NTP"),
		doctor.Good(fmt.Sprintf("is within %v of this machine's, and steady", offset.Abs().Truncate(time.Millisecond)+time.Millisecond)))
}

func (c *checkup) time(ctx context.Context, node string) (time.Time, error) {
	reply, err := c.store.main.Ask(ctx, node, "TIME")
	if err != nil {
		return time.Time{}, classify(err)
	}
	fields, ok := reply.([]any)
	if !ok || len(fields) != 2 {
		return time.Time{}, errReply
	}
	var n [2]int64
	for i := range n {
		text, _ := fields[i].(string)
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return time.Time{}, errReply
		}
	}
	return time.Unix(n[0], n[1]*1000), nil
}

// parseInfo reads "field:value" lines. In RESP3 the name of a format may precede the
// text.
func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(strings.TrimPrefix(text, "txt:")) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
