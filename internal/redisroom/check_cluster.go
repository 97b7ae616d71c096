package redisroom

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// allSlots is cluster_slots_ok of a cluster that serves every slot.
var allSlots = strconv.Itoa(Slots)

// cluster checks the nodes' reports on the cluster.
func (c *checkup) cluster(ctx context.Context, nodes []string) {
	c.moving(ctx, nodes)
	c.bare(nodes)
	for _, node := range nodes {
		text, err := c.ask(ctx, node, "CLUSTER", "INFO")
		if err != nil && isRight(err) {
			c.Found(driver.Notice, "cluster", "the user may not ask for CLUSTER INFO", "", "grant +cluster|info to look at it")
			return
		}
		if err != nil {
			continue // reported elsewhere
		}
		c.state(parseInfo(text), len(nodes))
		return
	}
}

// bare finds primaries without a replica if other primaries have one.
func (c *checkup) bare(nodes []string) {
	var without []string
	for _, node := range nodes {
		if n, told := c.replicas[node]; told && n == 0 {
			without = append(without, node)
		}
	}
	if len(without) == len(c.replicas) {
		return // one finding covers all
	}
	for _, c.Subject = range without {
		c.Found(driver.Warning, "replicas", "has none, but other primaries have", "if it is lost, no replica takes over the locks of its slots", "add a replica of it")
	}
	c.Subject = ""
}

// moving finds slots that are moving from one node to another.
func (c *checkup) moving(ctx context.Context, nodes []string) {
	var slots []string
	for _, node := range nodes {
		text, err := c.ask(ctx, node, "CLUSTER", "NODES")
		if err != nil && isRight(err) {
			c.Found(driver.Notice, "slots", "the user may not ask for CLUSTER NODES", "a slot may be half moved", "grant +cluster|nodes to look at it")
			return
		}
		slots = append(slots, openSlots(strings.TrimPrefix(text, "txt:"))...)
	}
	slices.Sort(slots)
	if slots = slices.Compact(slots); len(slots) == 0 {
		return
	}
	what := "slot " + slots[0] + " is being moved"
	if len(slots) > 1 {
		what = fmt.Sprintf("%d slots are being moved, such as %s", len(slots), slots[0])
	}
	c.Found(driver.Warning, "slots", what, "a free lock of such a slot cannot be taken until the slot has arrived",
		"finish the move, or end it with CLUSTER SETSLOT and STABLE")
}

// openSlots reads from CLUSTER NODES which slots the node that answers is giving away
// or taking over: "[93-<-id]", "[77->-id]".
func openSlots(text string) (slots []string) {
	const before = 8 // fields before the slots
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) <= before || !strings.Contains(fields[2], "myself") {
			continue
		}
		for _, field := range fields[before:] {
			if slot, ok := strings.CutPrefix(field, "["); ok {
				number, _, _ := strings.Cut(slot, "-")
				slots = append(slots, number)
			}
		}
	}
	return slots
}

func (c *checkup) state(info map[string]string, primaries int) {
	c.Judge("cluster",
		doctor.If(info["cluster_state"] != "ok", driver.Unsafe, "its state is "+info["cluster_state"], "locks are unavailable", "see CLUSTER INFO and CLUSTER NODES"),
		doctor.If(info["cluster_slots_ok"] != allSlots, driver.Unsafe, info["cluster_slots_ok"]+" of "+allSlots+" slots are served",
			"some locks are unavailable", "see CLUSTER NODES for the node that is missing"),
		doctor.Good(fmt.Sprintf("all slots are served, by %d primaries", primaries)))
	c.Judge("cluster", doctor.If(len(c.About("replicas")) == 0, driver.Notice, "no primary has a replica", "losing a primary makes the locks of its slots unavailable", ""))
}

// sentinels checks the sentinels' reports on the primary and on each other.
func (c *checkup) sentinels(ctx context.Context, addrs []string, primary string) {
	answered, most := false, 0
	c.agreed(ctx, addrs, primary)
	for _, addr := range addrs {
		c.Subject = addr
		reply, err := c.store.main.Ask(ctx, addr, "SENTINEL", "MASTER", primary)
		if err != nil {
			c.Found(driver.Warning, "sentinel", "does not answer: "+classify(err).Error(), "one fewer can agree to a failover", "bring it back, or take it out of the URL")
			continue
		}
		answered = true
		others, _ := strconv.Atoi(field(reply, "num-other-sentinels"))
		most = max(most, others+1)
		flags := field(reply, "flags")
		c.Judge("sentinel", doctor.If(flags != "master", driver.Warning, fmt.Sprintf("calls the primary %q", flags), "it is about to be replaced", ""))
		if _, err := c.ask(ctx, addr, "SENTINEL", "CKQUORUM", primary); err != nil {
			c.Found(driver.Warning, "sentinel", "finds no quorum: "+err.Error(), "no replica takes over if the primary is lost", "see SENTINEL CKQUORUM")
		}
	}
	if c.Subject = ""; answered {
		c.Judge("sentinel",
			doctor.If(most < 3, driver.Warning, fmt.Sprintf("there are %d sentinels", most), "with one of them lost no majority agrees to a failover", "run three, on machines of their own"),
			doctor.Good(fmt.Sprintf("%d sentinels watch the primary", most)))
	}
}

// agreed checks that all sentinels name the same primary. For a moment after a failover
// they do not.
func (c *checkup) agreed(ctx context.Context, addrs []string, primary string) {
	var named map[string]string
	for try := range 2 {
		if try > 0 {
			timing.Sleep(ctx, failingOver)
		}
		if named = c.named(ctx, addrs, primary); len(named) <= 1 {
			return
		}
	}
	all := slices.Sorted(maps.Values(named))
	c.Found(driver.Unsafe, "sentinel", fmt.Sprintf("the sentinels name %d primaries: %s", len(all), strings.Join(all, ", ")),
		"each of them grants the same locks", "name the sentinels of one primary only, and give each primary a name of its own")
}

// failingOver bounds the time in which sentinels agree after a failover.
const failingOver = 3 * time.Second

// named returns the addresses of the primaries that sentinels name, by their identity.
func (c *checkup) named(ctx context.Context, addrs []string, primary string) map[string]string {
	named := make(map[string]string)
	for _, addr := range addrs {
		reply, err := c.store.main.Ask(ctx, addr, "SENTINEL", "MASTER", primary)
		if err != nil {
			continue // reported elsewhere
		}
		at := net.JoinHostPort(field(reply, "ip"), field(reply, "port"))
		named[cmp.Or(field(reply, "runid"), at)] = at
	}
	return named
}

// field returns a value of a reply of names and values.
func field(reply any, name string) string {
	pairs, _ := reply.([]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == name {
			value, _ := pairs[i+1].(string)
			return value
		}
	}
	return ""
}

var lastingScript = newScript("lasting")

// Bounds of the search for keys without expiry on one server.
const (
	maxSearched  = 50_000
	searchTime   = 2 * time.Second
	maxNamed     = 3
	searchedOnce = 100
)

// lasting finds keys of this store that have no expiry.
func (c *checkup) lasting(ctx context.Context, node string) {
	var found, broken []string
	searched, start := 0, time.Now()
	for at, first := uint64(0), true; first || at != 0; first = false {
		names, next, err := c.store.scan(ctx, node, c.store.prefix, at)
		if err == nil {
			broken = append(broken, c.brokenCounters(ctx, node, names)...)
			names, err = c.store.withoutExpiry(ctx, slices.DeleteFunc(names, c.store.foreign))
		}
		if err != nil {
			c.Found(driver.Notice, "keys", "cannot be listed: "+classify(err).Error(), "", "grant +@read to look at them")
			return
		}
		found = append(found, names...)
		at, searched = next, searched+scanCount
		if searched >= maxSearched || time.Since(start) > searchTime {
			break
		}
	}
	c.Judge("keys",
		doctor.If(len(found) > 0, driver.Warning, fmt.Sprintf("%d have no expiry, such as %s", len(found), some(found)),
			"their locks are never free again", "delete the unused keys; another program removed their expiry or uses the same prefix"),
		doctor.Good("all have an expiry"))
	c.Judge("counter", doctor.If(len(broken) > 0, driver.Unsafe, some(broken)+" holds something else",
		"no lock can be acquired", "delete the key; the counter then begins above all earlier tokens"))
}

// some quotes the first of some names.
func some(names []string) string {
	var quoted []string
	for _, name := range names[:min(len(names), maxNamed)] {
		quoted = append(quoted, strconv.Quote(name))
	}
	return strings.Join(quoted, ", ")
}

// brokenCounters returns those names that are counters but hold no token.
func (c *checkup) brokenCounters(ctx context.Context, node string, names []string) (broken []string) {
	for _, name := range names {
		if !strings.HasPrefix(name, c.store.counterKey) {
			continue
		}
		text, err := c.ask(ctx, node, "GET", name)
		token, wrong := strconv.ParseInt(text, 10, 64)
		if errors.Is(err, driver.ErrMismatch) || err == nil && (wrong != nil || token >= anyToken) {
			broken = append(broken, name)
		}
	}
	return broken
}

// foreign reports whether a key may belong to another program, or is meant to have no
// expiry.
func (s *Store) foreign(name string) bool {
	return s.prefix == "" && !strings.Contains(name, separator) || name == s.prefix+markKey
}

// withoutExpiry returns the keys, all on one server, that have no expiry.
func (s *Store) withoutExpiry(ctx context.Context, names []string) (lasting []string, err error) {
	groups := make(map[int][]string)
	for i, name := range names {
		at := i / searchedOnce
		if s.main.Cluster() {
			at = Slot(name)
		}
		groups[at] = append(groups[at], name)
	}
	var cmds [][]string
	for _, group := range groups {
		cmds = append(cmds, append([]string{evalsha, s.form(lastingScript).sha, strconv.Itoa(len(group))}, group...))
	}
	err = s.runEach(ctx, lastingScript, cmds, func(_ []string, reply any) {
		keys, _ := reply.([]any)
		for _, key := range keys {
			if name, ok := key.(string); ok {
				lasting = append(lasting, name)
			}
		}
	})
	return lasting, err
}
