package redisroom

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/timing"
)

// Inspect implements [driver.Inspector].
func (s *Store) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.inspect(ctx, key)
}

// Glance implements [driver.Glancer].
func (s *Store) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.inspect(ctx, key, "glance")
}

func (s *Store) inspect(ctx context.Context, key string, args ...string) (driver.Snapshot, error) {
	if err := check.Key(key); err != nil {
		return driver.Snapshot{}, err
	}
	f := s.form(inspectScript)
	cmd := s.roomCommand(f, key, args...)
	reply, err := s.run(ctx, inspectScript, cmd)
	if isLost(ctx, err) {
		reply, err = s.run(ctx, inspectScript, cmd)
	}
	cmd.free()
	if err != nil {
		return driver.Snapshot{}, err
	}
	snap, err := parseSnapshot(reply)
	snap.Key = key
	return snap, err
}

// isLost reports whether a read failed because its connection, which is shared, was lost.
// The read has no effect, so the caller repeats it at once.
func isLost(ctx context.Context, err error) bool {
	return err != nil && ctx.Err() == nil && !IsReply(err) && !timing.Definite(err) && !timing.IsTimeout(err)
}

// parseSnapshot reads the reply of lua/inspect.lua.
func parseSnapshot(reply any) (snap driver.Snapshot, err error) {
	const scalars, perParty = 6, 3
	f, ok := reply.([]any)
	if !ok || len(f) < scalars || (len(f)-scalars)%perParty != 0 {
		return snap, fmt.Errorf("%w: %v", errReply, reply)
	}
	var n [scalars]int64
	for _, i := range []int{0, 1, 2, 3, 5} {
		if n[i], ok = f[i].(int64); !ok {
			return snap, fmt.Errorf("%w: %v", errReply, reply)
		}
	}
	value, ok := f[4].(string)
	if !ok {
		return snap, fmt.Errorf("%w: %v", errReply, reply)
	}
	snap.Token, snap.Closed = n[0], millis(n[2])
	if value != "" && value != "*" {
		snap.Holders = append(snap.Holders, parseHolderKey(value, n[5]))
	}
	shared := false
	for f = f[scalars:]; len(f) > 0; f = f[perParty:] {
		id, ok1 := f[0].(string)
		left, ok2 := f[1].(int64)
		words, ok3 := f[2].(string)
		if !ok1 || !ok2 || !ok3 {
			return snap, fmt.Errorf("%w: party %v", errReply, f[:perParty])
		}
		h := driver.Holder{ID: id, Remaining: millis(left)}
		waits, err := parseParty(words, &h)
		if err != nil {
			continue // not written by a script, which ignores it, too
		}
		shared = shared || h.Mode == driver.Shared
		if !waits {
			snap.Holders = append(snap.Holders, h)
			continue
		}
		snap.Waiters = append(snap.Waiters, driver.Waiter{
			ID: id, Owner: h.Owner, Mode: h.Mode, Weight: h.Weight, Position: len(snap.Waiters) + 1,
			Since: h.Since, Remaining: h.Remaining, Labels: h.Labels,
		})
	}
	if shared {
		snap.Limit = int(n[1])
	}
	return snap, nil
}

// parseHolderKey reads the uncontended form of a holder key, "<id> <terms> <meta> <token>".
// Anything else is shown as another library's lock.
func parseHolderKey(value string, left int64) driver.Holder {
	h := driver.Holder{Mode: driver.Exclusive, Weight: 1, Remaining: millis(left), Confirmed: true}
	const words = 12
	w := strings.SplitN(value, " ", words)
	last := w[len(w)-1]
	at := strings.LastIndexByte(last, ' ')
	token, err := strconv.ParseInt(last[at+1:], 10, 64)
	if len(w) < words || at < 0 || err != nil || check.ID(w[0]) != nil || w[1] != "x" || last[0] != '{' {
		h.ID, h.Foreign = foreignID(value), true
		return h
	}
	h.ID, h.Token = w[0], token
	parseMeta(last[:at], &h)
	return h
}

// parseParty reads the words of lua/room's PARTY into h, and reports whether it is one of a waiter.
func parseParty(words string, h *driver.Holder) (waits bool, err error) {
	const fields = 13
	w := strings.SplitN(words, " ", fields)
	if len(w) != fields || len(w[0]) != 1 {
		return false, errReply
	}
	waits = w[0] == "w"
	h.Mode, h.Confirmed = parseMode(w[1]), w[0] == "c"
	if h.Weight, err = strconv.Atoi(w[3]); err != nil {
		return waits, err
	}
	if h.Token, err = strconv.ParseInt(w[9], 10, 64); err != nil {
		return waits, err
	}
	if !waits {
		var ok bool
		if h.Places, ok = parsePlaces(w[8]); !ok {
			return waits, errReply
		}
	}
	parseMeta(w[12], h)
	return waits, nil
}

// scanCount is how many keys one step of a listing examines.
const scanCount = 512

// List implements [driver.Inspector]. Keys come in the order of the server's SCAN, node
// after node; the cursor is "<node> <scan cursor>". Locks of other libraries are listed
// too, except if the prefixes of the store and of the call are both empty: then every
// string of the server with an expiry would look like a lock.
func (s *Store) List(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	if keys, next, err = s.list(ctx, prefix, cursor); isLost(ctx, err) {
		keys, next, err = s.list(ctx, prefix, cursor)
	}
	return keys, next, err
}

func (s *Store) list(ctx context.Context, prefix, cursor string) (keys []string, next string, err error) {
	if ctx.Err() != nil {
		return nil, "", notSent(ctx)
	}
	nodes, err := s.main.Nodes(ctx)
	if err != nil {
		return nil, "", classify(err)
	}
	node, at, err := parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	i := 0
	if cursor != "" {
		// If the node has left the cluster since, continue with the next one.
		var found bool
		if i, found = slices.BinarySearch(nodes, node); !found {
			at = 0
		}
	}
	if i == len(nodes) {
		return nil, "", nil
	}
	names, at, err := s.scan(ctx, nodes[i], s.prefix+prefix, at)
	if err != nil {
		return nil, "", classify(err)
	}
	keys, err = s.occupied(ctx, s.candidates(names), s.prefix+prefix != "")
	switch {
	case at != 0:
		next = nodes[i] + " " + strconv.FormatUint(at, 10)
	case i+1 < len(nodes):
		next = nodes[i+1] + " 0"
	}
	return keys, next, err
}

// scan runs one step of SCAN on a node, for the names that begin with prefix.
func (s *Store) scan(ctx context.Context, node, prefix string, at uint64) (names []string, next uint64, err error) {
	reply, err := s.main.Ask(ctx, node, "SCAN", strconv.FormatUint(at, 10),
		"MATCH", escapeGlob(prefix)+"*", "COUNT", strconv.Itoa(scanCount))
	if err != nil {
		return nil, 0, err
	}
	if fields, _ := reply.([]any); len(fields) == 2 {
		cursor, _ := fields[0].(string)
		found, _ := fields[1].([]any)
		for _, name := range found {
			text, _ := name.(string)
			names = append(names, text)
		}
		if next, err = strconv.ParseUint(cursor, 10, 64); err == nil {
			return names, next, nil
		}
	}
	return nil, 0, fmt.Errorf("SCAN: %w: %v", errReply, reply)
}

func parseCursor(cursor string) (node string, at uint64, err error) {
	if cursor == "" {
		return "", 0, nil
	}
	node, number, _ := strings.Cut(cursor, " ")
	if at, err = strconv.ParseUint(number, 10, 64); err != nil {
		return "", 0, fmt.Errorf("cursor %q is not one of this store: %w", cursor, driver.ErrInvalid)
	}
	return node, at, nil
}

// candidates returns the keys of the locks to which names belong.
func (s *Store) candidates(names []string) (keys []string) {
	seen := make(map[string]bool)
	for _, name := range names {
		h, _, _ := strings.Cut(name, separator)
		key := strings.TrimPrefix(h, s.prefix)
		if !seen[key] && check.Key(key) == nil {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// occupied returns the keys whose locks are held or waited for; it includes locks of
// other libraries if foreign is set.
func (s *Store) occupied(ctx context.Context, keys []string, foreign bool) (in []string, err error) {
	counts := "0"
	if foreign {
		counts = "1"
	}
	f := s.form(listScript)
	cmds := make([][]string, len(keys))
	for i, key := range keys {
		cmds[i] = s.roomCommand(f, key, counts).take()
	}
	err = s.runEach(ctx, listScript, cmds, func(cmd []string, reply any) {
		if reply == int64(1) {
			in = append(in, strings.TrimPrefix(cmd[FirstKey], s.prefix))
		}
	})
	return in, err
}

// runEach runs commands of a script in pipelines, and again those that may succeed then. It passes
// on each reply with its command.
func (s *Store) runEach(ctx context.Context, sc *script, cmds [][]string, each func(cmd []string, reply any)) error {
	var err error
	for len(cmds) > 0 && err == nil {
		var again [][]string
		s.main.Run(ctx, cmds, Acks{}, func(i int, a Answer) {
			switch {
			case a.Err == nil:
				each(cmds[i], a.Reply)
			case s.repeat(sc, cmds[i], a.Err):
				again = append(again, cmds[i])
			default:
				err = classify(a.Err)
			}
		})
		cmds = again
	}
	return err
}

// escapeGlob makes a pattern of SCAN that matches s itself.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `^`, `\^`).Replace(s)
}
