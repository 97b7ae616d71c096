//go:build linux

package chaos_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/chaos"
	"github.com/leasehold-go/leasehold/internal/test/history"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
)

// TestChaos_OnAQuorum uses five servers. Two at a time have faults, and one at a
// time loses its data: exclusion must hold without exception.
func TestChaos_OnAQuorum(t *testing.T) {
	t.Parallel()
	q := new(quorum)
	var through, direct []string
	for range 5 {
		s := redistest.Start(t)
		p := respproxy.Start(t, s.Addr())
		q.servers, q.proxies = append(q.servers, s), append(q.proxies, p)
		through, direct = append(through, throughProxy(p)), append(direct, s.URL())
	}
	// A node that lost its data does not vote for a little longer than the TTL of the leases under test.
	front := fmt.Sprintf("quorum://?max-skew=0s&max-ttl=%v&node=", 2*ttl)
	suffer(t, &chaos.Game{
		Label: "quorum of five Redis servers", Havoc: q.havoc(),
		Rules:  history.Rules{Tokens: true, Prompt: queue.Prompt},
		Stores: []string{front + strings.Join(through, "&node=")}, Look: front + strings.Join(direct, "&node="),
	})
}

type quorum struct {
	servers []*redistest.Server
	proxies []*respproxy.Proxy
}

func (q *quorum) havoc() []chaos.Havoc {
	// some makes a fault of up to n nodes at once.
	some := func(name string, n int, begin, end func(i int)) chaos.Havoc {
		return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
			which := rnd.Perm(len(q.servers))[:1+rnd.IntN(n)]
			for _, i := range which {
				begin(i)
			}
			time.Sleep(upTo(rnd, 2*ttl))
			for _, i := range which {
				end(i)
			}
			return nil
		}}
	}
	stop := func(i int) { q.servers[i].Stop() }
	cont := func(i int) { q.servers[i].Cont() }
	mute := func(i int) { q.proxies[i].Mute() }
	unmute := func(i int) { q.proxies[i].Unmute() }
	refuse := func(i int) { q.proxies[i].Refuse(true); q.proxies[i].CutAll() }
	accept := func(i int) { q.proxies[i].Refuse(false) }
	// one loses the data of a node, and waits until it has a vote again.
	one := func(name string, lose func(s *redistest.Server) error) chaos.Havoc {
		return chaos.Havoc{Name: name, Do: func(rnd *rand.Rand) error {
			err := lose(q.servers[rnd.IntN(len(q.servers))])
			time.Sleep(4 * ttl)
			return err
		}}
	}
	havoc := []chaos.Havoc{
		some("stop a minority", 2, stop, cont),
		some("black hole before a minority", 2, mute, unmute),
		some("a minority refuses", 2, refuse, accept),
		some("stop a majority", 3, stop, cont),
		one("restart a node without data", func(s *redistest.Server) error {
			s.Kill()
			err := wipe(s)
			s.Restart()
			return err
		}),
		one("FLUSHALL on a node", func(s *redistest.Server) error { return tell(s, "FLUSHALL") }),
		{Name: "SCRIPT FLUSH everywhere", Do: func(*rand.Rand) (err error) {
			for _, s := range q.servers {
				err = errors.Join(err, tell(s, "SCRIPT", "FLUSH"))
			}
			return err
		}},
	}
	for _, p := range q.proxies {
		for _, h := range proxyHavoc(p) {
			if h.Name == "replies dropped" || h.Name == "requests held back" || h.Name == "no way back" {
				h.Name += " at a node"
				havoc = append(havoc, h)
			}
		}
	}
	return havoc
}
