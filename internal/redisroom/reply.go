package redisroom

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
)

// errReply is the error of a reply that no script returns.
var errReply = errors.New("unexpected reply")

// Lengths of the reply of lua/acquire: the scalars, then possibly a holder or, with GONE,
// the reason of a break.
const (
	replyScalars    = 6
	replyWithHolder = 14
)

// parseReply reads a reply as of lua/acquire.
func parseReply(reply any) (driver.Reply, error) {
	fields, ok := reply.([]any)
	if !ok || len(fields) < replyScalars {
		return driver.Reply{}, fmt.Errorf("%w: %v", errReply, reply)
	}
	var n [replyScalars]int64
	for i := range n {
		if n[i], ok = fields[i].(int64); !ok {
			return driver.Reply{}, fmt.Errorf("%w: %v", errReply, reply)
		}
	}
	if n[0] < 0 || n[0] > int64(driver.Resized) {
		return driver.Reply{}, fmt.Errorf("%w: state %d", errReply, n[0])
	}
	r := driver.Reply{
		State: driver.State(n[0]), Token: n[1], Holds: int(n[2]), Position: int(n[3]),
		RetryAfter: millis(n[4]), Clock: micros(n[5]),
	}
	if r.State == driver.Granted || r.State == driver.Gone {
		r.Replayed, r.Position = r.Position == 1, 0
	}
	if r.State == driver.Granted {
		r.Wanted, r.RetryAfter = n[4] == 1, 0
	}
	switch {
	case len(fields) == replyScalars:
	case len(fields) == replyScalars+1 && r.State == driver.Gone:
		r.Broken = true
		r.Reason, ok = fields[replyScalars].(string)
	case len(fields) == replyScalars+1 && r.State == driver.Granted:
		r.Places, ok = parsePlaces(fields[replyScalars])
	case len(fields) == replyWithHolder:
		var holder driver.Holder
		holder, ok = parseHolder(fields[replyScalars:])
		r.Holders = []driver.Holder{holder}
	default:
		ok = false
	}
	if !ok {
		return driver.Reply{}, fmt.Errorf("%w: %v", errReply, reply)
	}
	return r, nil
}

// parsePlaces reads the places of a holder, as of lua/room/places.lua.
func parsePlaces(field any) (driver.Places, bool) {
	text, ok := field.(string)
	if text == none {
		return "", true
	}
	return driver.Places(text), ok && strings.Trim(text, "0123456789,") == ""
}

// parseHolder reads a holder: id, remaining ms, mode, weight, places, token, state
// and meta.
func parseHolder(f []any) (h driver.Holder, ok bool) {
	if h.ID, ok = f[0].(string); !ok {
		return h, false
	}
	left, ok1 := f[1].(int64)
	mode, ok2 := f[2].(string)
	weight, ok3 := f[3].(int64)
	places, ok4 := parsePlaces(f[4])
	token, ok5 := f[5].(int64)
	state, ok6 := f[6].(string)
	meta, ok7 := f[7].(string)
	if !ok1 || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 {
		return h, false
	}
	h.Mode, h.Weight, h.Places, h.Token, h.Remaining = parseMode(mode), int(weight), places, token, millis(left)
	h.Confirmed, h.Foreign = state != "u", state == "f"
	if !h.Foreign {
		parseMeta(meta, &h)
	} else {
		h.ID = foreignID(h.ID)
	}
	return h, true
}

func parseMode(s string) driver.Mode {
	if s == "s" {
		return driver.Shared
	}
	return driver.Exclusive
}

// foreignID shows the value of another library's lock, shortened and without characters
// that disturb a terminal or a log.
func foreignID(value string) string {
	const most = 64
	value = strings.ToValidUTF8(value[:min(len(value), most)], "?")
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, value)
}

// parseMeta reads the output of appendMeta, the part that people read. Other text is empty to it.
func parseMeta(text string, h *driver.Holder) {
	var m struct {
		Owner  string            `json:"o"`
		Since  int64             `json:"s"`
		Labels map[string]string `json:"l"`
	}
	_ = json.Unmarshal([]byte(text), &m)
	h.Owner, h.Since, h.Labels = m.Owner, time.UnixMilli(m.Since), m.Labels
}

// parseAcquire reads the answer of lua/acquire. A number is the token of a lease on a
// free lock, two numbers are the token and the clock that seeded it.
func parseAcquire(reply any) (driver.Reply, error) {
	token, ok := reply.(int64)
	var clock int64
	if pair, is := reply.([]any); is && len(pair) == 2 {
		var timed bool
		token, ok = pair[0].(int64)
		clock, timed = pair[1].(int64)
		ok = ok && timed
	}
	if ok {
		return driver.Reply{State: driver.Granted, Token: token, Holds: 1, Uncontended: true, Clock: micros(clock)}, nil
	}
	return parseReply(reply)
}

// parseRelease reads the answer of lua/release. A number is the end of an uncontended
// lease.
func parseRelease(reply any) (driver.Reply, error) {
	if n, ok := reply.(int64); ok && n == 1 {
		return driver.Reply{State: driver.Released}, nil
	}
	return parseReply(reply)
}

// parseRenewal reads one answer of lua/renew. A string is the token of an uncontended
// lease.
func parseRenewal(reply any) (driver.Reply, error) {
	switch reply := reply.(type) {
	case ReplyError:
		return driver.Reply{}, refusal(reply)
	case string:
		return parseToken(reply)
	}
	return parseReply(reply)
}

// parseToken reads the answer for an uncontended lease that was prolonged.
func parseToken(text string) (driver.Reply, error) {
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return driver.Reply{}, fmt.Errorf("%w: %q", errReply, text)
	}
	return driver.Reply{State: driver.Granted, Token: token, Holds: 1, Uncontended: true}, nil
}

// brokenHint returns the message to all subscriptions that a lease or ticket was broken. It
// contains the prefix, since the channel's name may omit it.
func brokenHint(prefix, key, id, reason string) string {
	return "b " + id + " " + strconv.Itoa(len(prefix)+len(key)) + " " + prefix + key + reason
}

// parseHint reads a message to a subscription: "g id token clock window places" for a hand-over,
// "a id next" to ask, or that of brokenHint. ok is false for a lock of another prefix.
func parseHint(prefix, text string) (h driver.Hint, ok bool) {
	kind, rest, _ := strings.Cut(text, " ")
	id, rest, found := strings.Cut(rest, " ")
	if !found || check.ID(id) != nil {
		return h, false
	}
	h.ID = id
	switch kind {
	case "g":
		var n [3]int64
		last := strings.LastIndexByte(rest, ' ')
		if h.Places, ok = parsePlaces(rest[last+1:]); !ok {
			return driver.Hint{}, false
		}
		ok = parseInts(rest[:max(last, 0)], n[:])
		h.Kind, h.Token, h.Clock, h.ConfirmWindow = driver.HintGranted, n[0], micros(n[1]), millis(n[2])
	case "a":
		var n [1]int64
		ok = parseInts(rest, n[:])
		h.Kind, h.RetryAfter = driver.HintAsk, millis(n[0])
	case "b":
		length, rest, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 || n > len(rest) {
			return driver.Hint{}, false
		}
		h.Kind, h.Reason = driver.HintBroken, rest[n:]
		h.Key, ok = strings.CutPrefix(rest[:n], prefix)
		ok = ok && check.Key(h.Key) == nil
	}
	if !ok {
		return driver.Hint{}, false
	}
	return h, true
}

// parseInts reads len(n) numbers, all at least 0, separated by single spaces.
func parseInts(s string, n []int64) bool {
	for i := range n {
		word, rest, more := strings.Cut(s, " ")
		if more == (i == len(n)-1) {
			return false
		}
		v, err := strconv.ParseInt(word, 10, 64)
		if err != nil || v < 0 {
			return false
		}
		n[i], s = v, rest
	}
	return true
}

// millis and micros return durations, limited to the range of time.Duration.
func millis(ms int64) time.Duration { return scale(ms, time.Millisecond) }
func micros(us int64) time.Duration { return scale(us, time.Microsecond) }

func scale(n int64, unit time.Duration) time.Duration {
	const most = 1<<63 - 1
	if n > most/int64(unit) {
		return most
	}
	return time.Duration(max(n, 0)) * unit
}
