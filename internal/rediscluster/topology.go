package rediscluster

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/internal/redisroom"
)

// Range is a run of slots that one primary serves.
type Range struct {
	First, Last int
	Primary     string   // host:port
	Replicas    []string // host:port
}

// Topology maps slots to nodes. Several clients of one cluster share it, so that all use
// the latest answer. The zero value is empty. It is safe for concurrent use.
type Topology struct {
	single atomic.Bool // there is one server, and no cluster

	mu      sync.RWMutex
	ranges  []Range
	moved   map[int]string // slots of later redirections
	taken   time.Time      // when the question was sent
	told    map[*Client]struct{}
	changes uint64
}

// Changes counts how often a slot was found to be served by another node.
func (p *Topology) Changes() uint64 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.changes
}

// primary returns the address of the node that serves a slot, or "", and whether a
// topology is known.
func (p *Topology) primary(slot int) (addr string, known bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if addr, ok := p.moved[slot]; ok {
		return addr, true
	}
	i := sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].Last >= slot })
	if i < len(p.ranges) && p.ranges[i].First <= slot {
		addr = p.ranges[i].Primary
	}
	return addr, len(p.ranges) > 0
}

// nodes returns the addresses of the primaries and of the replicas, each sorted.
func (p *Topology) nodes() (primaries, replicas []string) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, r := range p.ranges {
		primaries = append(primaries, r.Primary)
		replicas = append(replicas, r.Replicas...)
	}
	for _, addr := range p.moved {
		primaries = append(primaries, addr)
	}
	slices.Sort(primaries)
	slices.Sort(replicas)
	return slices.Compact(primaries), slices.Compact(replicas)
}

// age returns the time since the cluster was asked.
func (p *Topology) age() time.Duration {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return time.Since(p.taken)
}

// join makes a client be notified of changes of the topology, until leave.
func (p *Topology) join(c *Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.told == nil {
		p.told = make(map[*Client]struct{})
	}
	p.told[c] = struct{}{}
}

func (p *Topology) leave(c *Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.told, c)
}

// refreshedSince reports whether the cluster was asked after t.
func (p *Topology) refreshedSince(t time.Time) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.taken.After(t)
}

// replace stores a node's answer to a request sent at asked, and notifies the clients.
func (p *Topology) replace(ranges []Range, asked time.Time) {
	for _, c := range p.set(ranges, asked) {
		c.adaptNodes()
	}
}

// set stores the answer and returns the clients to notify.
func (p *Topology) set(ranges []Range, asked time.Time) []*Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	if asked.Before(p.taken) {
		return nil
	}
	if !slices.EqualFunc(p.ranges, ranges, func(a, b Range) bool {
		return a.First == b.First && a.Last == b.Last && a.Primary == b.Primary
	}) {
		p.changes++
	}
	p.ranges, p.moved, p.taken = ranges, nil, asked
	return slices.Collect(maps.Keys(p.told))
}

// setSingle notes that there is one server without a cluster.
func (p *Topology) setSingle(addr string) {
	p.replace([]Range{{First: 0, Last: redisroom.Slots - 1, Primary: addr}}, time.Now())
	p.single.Store(true)
}

// setSlot notes that a redirection named another node for a slot.
func (p *Topology) setSlot(slot int, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.moved == nil {
		p.moved = make(map[int]string)
	}
	p.moved[slot] = addr
	p.changes++
}

// parseSlots reads the reply of CLUSTER SLOTS from the node at origin. A cluster that
// does not know the name by which its clients reach it leaves out the host of an address;
// it is then the host of the node that answered.
func parseSlots(reply any, origin string) ([]Range, error) {
	entries, _ := reply.([]any)
	var ranges []Range
	for _, entry := range entries {
		fields, _ := entry.([]any)
		if len(fields) < 3 {
			return nil, fmt.Errorf("CLUSTER SLOTS: unexpected reply: %v", entry)
		}
		first, ok1 := fields[0].(int64)
		last, ok2 := fields[1].(int64)
		r := Range{First: int(first), Last: int(last)}
		for i, field := range fields[2:] {
			addr, ok := parseNode(field, origin)
			switch {
			case !ok || !ok1 || !ok2:
				return nil, fmt.Errorf("CLUSTER SLOTS: unexpected reply: %v", entry)
			case i == 0:
				r.Primary = addr
			default:
				r.Replicas = append(r.Replicas, addr)
			}
		}
		ranges = append(ranges, r)
	}
	if len(ranges) == 0 {
		return nil, fmt.Errorf("%s belongs to no cluster: it returned no served slots", origin)
	}
	sort.Slice(ranges, func(i, j int) bool { return ranges[i].First < ranges[j].First })
	return ranges, nil
}

// parseNode reads an entry of a node, which begins with host and port.
func parseNode(field any, origin string) (addr string, ok bool) {
	words, _ := field.([]any)
	if len(words) < 2 {
		return "", false
	}
	host, _ := words[0].(string) // nil if it is not known
	port, ok := words[1].(int64)
	return seenFrom(origin, host, strconv.FormatInt(port, 10)), ok
}

// seenFrom completes an address that the node at origin has returned. A node that is reached
// by an address of another machine may report a local one for itself.
func seenFrom(origin, host, port string) string {
	reached, at, err := net.SplitHostPort(origin)
	if err != nil {
		return net.JoinHostPort(host, port)
	}
	if ip := net.ParseIP(host); host == "" || host == "?" || ip.IsLoopback() && !isLocal(reached) {
		host = reached
	}
	if port == "0" { // of a cluster that speaks TLS only, before Redis 7.0.5
		port = at
	}
	return net.JoinHostPort(host, port)
}

func isLocal(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}

// redirected completes the address of a redirection by the node at origin, which may lack
// its host.
func redirected(origin, addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return seenFrom(origin, host, port)
}
