package respproxy

import (
	"slices"
	"strings"
	"sync"
)

// request is a request that the server has not fully answered.
type request struct {
	rule *Rule // nil without a rule
	// confirms is the command, in lower case, if it is answered by
	// confirmations instead of one reply.
	confirms string
	// names is how many channels or patterns it names.
	names int
	// left is how many confirmations are still to come, once the first has.
	left int
}

// The commands that are answered by one confirmation per channel, and the
// kinds of message that subscribers receive. Both are the first words of
// pushes in RESP3 and of arrays in RESP2.
var (
	confirmed = []string{
		"subscribe", "psubscribe", "ssubscribe",
		"unsubscribe", "punsubscribe", "sunsubscribe",
	}
	messages = []string{"message", "pmessage", "smessage"}
)

// pending matches the frames from the server with the requests of one
// connection.
type pending struct {
	mu    sync.Mutex
	queue []*request
	// channels are the subscribed channels, by the command that subscribed them.
	channels map[string]map[string]struct{}
}

func newPending() *pending {
	return &pending{channels: make(map[string]map[string]struct{})}
}

// push records a request that is about to be forwarded.
func (p *pending) push(args [][]byte, rule *Rule) {
	req := &request{rule: rule, names: len(args) - 1}
	if command := strings.ToLower(string(args[0])); slices.Contains(confirmed, command) {
		req.confirms = command
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, req)
}

// answer describes a frame from the server.
type answer struct {
	req     *request // the request that it answers; nil for a push
	last    bool     // it is the last frame for req
	message bool     // it is a message to a subscriber
}

// rule returns the rule to which the request was subject, or nil.
func (a answer) rule() *Rule {
	if a.req == nil {
		return nil
	}
	return a.req.rule
}

// settle takes the next frame from the server.
func (p *pending) settle(f frame) answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	word, push := string(f.word(0)), f.kind == '>'
	if (push || f.kind == '*' && p.subscribed()) && slices.Contains(messages, word) {
		return answer{message: true}
	}
	if len(p.queue) == 0 {
		return answer{}
	}
	req := p.queue[0]
	switch {
	case req.confirms != "" && req.confirms == word:
		if p.confirm(req, string(f.word(1))) > 0 {
			return answer{req: req}
		}
	case push:
		return answer{}
	}
	p.queue = p.queue[1:]
	return answer{req: req, last: true}
}

// subscribed reports whether there is a subscription. In RESP2 an array that
// begins like a message is one only then.
func (p *pending) subscribed() bool {
	for _, set := range p.channels {
		if len(set) > 0 {
			return true
		}
	}
	return false
}

// confirm records one confirmation and returns how many more will come.
func (p *pending) confirm(req *request, channel string) int {
	kind := strings.Replace(req.confirms, "unsubscribe", "subscribe", 1)
	set := p.channels[kind]
	if set == nil {
		set = make(map[string]struct{})
		p.channels[kind] = set
	}
	if req.left == 0 {
		// Without a name it leaves all channels, and there is one confirmation even without a
		// channel.
		req.left = req.names
		if req.names == 0 {
			req.left = max(1, len(set))
		}
	}
	if req.confirms == kind {
		set[channel] = struct{}{}
	} else {
		delete(set, channel)
	}
	req.left--
	return req.left
}
