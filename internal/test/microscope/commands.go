package microscope

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	wrongType  = Error("WRONGTYPE Operation against a key holding the wrong kind of value")
	noInteger  = Error("ERR value is not an integer or out of range")
	noFloat    = Error("ERR value is not a valid float")
	syntax     = Error("ERR syntax error")
	wrongCount = Error("ERR wrong number of arguments")
)

// command is the implementation of a command. Its words follow the name and, for a command on a
// key, the key.
type command struct {
	// least is the smallest number of words.
	least int
	// needs is the type that the key must have if it exists, empty for any.
	needs string
	// keyless commands have no key.
	keyless bool
	// writes is set if the command may change its key.
	writes bool
	run    func(s *Server, key string, v Value, words []string) any
}

var commands = map[string]*command{
	"TIME":   {keyless: true, run: clockTime},
	"DEL":    {writes: true, run: del},
	"EXISTS": {run: exists},
	"TYPE":   {run: func(_ *Server, _ string, v Value, _ []string) any { return Status(v.Type()) }},
	"PTTL": {run: func(s *Server, _ string, v Value, _ []string) any {
		return ending(v, max(0, v.At-s.ms()))
	}},
	"PEXPIRETIME": {run: func(_ *Server, _ string, v Value, _ []string) any { return ending(v, v.At) }},
	"PEXPIRE":     {writes: true, least: 1, run: func(s *Server, key string, v Value, w []string) any { return s.expire(key, v, s.ms(), w) }},
	"PEXPIREAT":   {writes: true, least: 1, run: func(s *Server, key string, v Value, w []string) any { return s.expire(key, v, 0, w) }},
	"PUBLISH":     {keyless: true, least: 2, run: publish},

	"GET":      {needs: "string", run: func(_ *Server, _ string, v Value, _ []string) any { return v.text() }},
	"SETRANGE": {writes: true, needs: "string", least: 2, run: setRange},
	"GETEX":    {writes: true, needs: "string", run: func(_ *Server, _ string, v Value, _ []string) any { return v.text() }},
	"MGET":     {run: mget},
	"GETRANGE": {needs: "string", least: 2, run: getRange},
	"SET":      {writes: true, least: 1, run: set},
	"PSETEX":   {writes: true, least: 2, run: psetex},
	"INCR":     {writes: true, needs: "string", run: add(1)},
	"DECR":     {writes: true, needs: "string", run: add(-1)},

	"HGET":  {needs: "hash", least: 1, run: func(_ *Server, _ string, v Value, w []string) any { return v.field(w[0]) }},
	"HMGET": {needs: "hash", least: 1, run: hmget},
	"HSET":  {writes: true, needs: "hash", least: 2, run: hset},
	"HDEL":  {writes: true, needs: "hash", least: 1, run: hdel},

	"ZADD":             {writes: true, needs: "zset", least: 2, run: zadd},
	"ZREM":             {writes: true, needs: "zset", least: 1, run: zrem},
	"ZSCORE":           {needs: "zset", least: 1, run: zscore},
	"ZCARD":            {needs: "zset", run: func(_ *Server, _ string, v Value, _ []string) any { return int64(len(v.Sorted)) }},
	"ZCOUNT":           {needs: "zset", least: 2, run: zcount},
	"ZRANGE":           {needs: "zset", least: 2, run: zrange},
	"ZRANGEBYSCORE":    {needs: "zset", least: 2, run: zrangeByScore},
	"ZREVRANGEBYSCORE": {needs: "zset", least: 2, run: zrevrangeByScore},
}

// do runs a command, and reports whether it has changed a key.
func (s *Server) do(words []string) (reply any, changed bool) {
	if len(words) == 0 {
		return Error("ERR Please specify at least one argument for this redis.call() call"), false
	}
	c := commands[strings.ToUpper(words[0])]
	if c == nil {
		return Error("ERR Unknown Redis command called from script"), false
	}
	rest := words[1:]
	if c.keyless {
		if len(rest) < c.least {
			return wrongCount, false
		}
		return c.run(s, "", Value{}, rest), false
	}
	if len(rest) < 1+c.least {
		return wrongCount, false
	}
	key := rest[0]
	v := s.Keys[key]
	if t := v.Type(); c.needs != "" && t != "none" && t != c.needs {
		return wrongType, false
	}
	if !c.writes {
		return c.run(s, key, v, rest[1:]), false
	}
	before := s.Keys
	s.Keys = before.Clone()
	reply = c.run(s, key, v, rest[1:])
	if _, failed := reply.(Error); failed {
		s.Keys = before
		return reply, false
	}
	return reply, !before.Same(s.Keys)
}

// Same reports whether two keyspaces have the same content.
func (k Keys) Same(other Keys) bool { return maps.EqualFunc(k, other, Value.Same) }

// Same reports whether two values have the same content and end together.
func (v Value) Same(o Value) bool {
	if v.At != o.At || v.Type() != o.Type() || v.Text != nil && *v.Text != *o.Text {
		return false
	}
	return maps.Equal(v.Hash, o.Hash) && slices.Equal(v.Sorted, o.Sorted)
}

// put stores a value, or removes the key if the value has become empty, as the server does.
func (s *Server) put(key string, v Value) {
	if v.Text == nil && !v.List && len(v.Hash) == 0 && len(v.Sorted) == 0 {
		delete(s.Keys, key)
		return
	}
	s.Keys[key] = v
}

// exists counts the keys that are there, each as often as it is named.
func exists(s *Server, key string, _ Value, more []string) any {
	n := int64(0)
	for _, name := range append([]string{key}, more...) {
		n += truth(s.Keys[name].Type() != "none")
	}
	return n
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func (v Value) text() any {
	if v.Text == nil {
		return nil
	}
	return *v.Text
}

func (v Value) field(name string) any {
	if text, ok := v.Hash[name]; ok {
		return text
	}
	return nil
}

func ending(v Value, at int64) int64 {
	switch {
	case v.Type() == "none":
		return -2
	case v.At == 0:
		return -1
	}
	return at
}

func clockTime(s *Server, _ string, _ Value, _ []string) any {
	return []any{strconv.FormatInt(s.Now/1_000_000, 10), strconv.FormatInt(s.Now%1_000_000, 10)}
}

func publish(s *Server, _ string, _ Value, w []string) any {
	s.Published = append(s.Published, Message{Channel: w[0], Text: w[1]})
	return int64(1)
}

func del(s *Server, key string, v Value, more []string) any {
	n := int64(0)
	for _, key := range append([]string{key}, more...) {
		if _, ok := s.Keys[key]; ok {
			delete(s.Keys, key)
			n++
		}
	}
	return n
}

// expire sets the time at which a key ends. A key whose end has passed is removed.
func (s *Server) expire(key string, v Value, from int64, w []string) any {
	n, err := strconv.ParseInt(w[0], 10, 64)
	if err != nil {
		return noInteger
	}
	at := from + n
	for _, flag := range w[1:] {
		if strings.ToUpper(flag) != "GT" {
			return Error("ERR Unsupported option " + flag)
		}
		if v.At == 0 || at <= v.At { // without an end is greater than any
			return int64(0)
		}
	}
	switch {
	case v.Type() == "none":
		return int64(0)
	case at <= s.ms():
		delete(s.Keys, key)
	default:
		v.At = at
		s.Keys[key] = v
	}
	return int64(1)
}

func mget(s *Server, key string, _ Value, more []string) any {
	all := []any{s.Keys[key].text()}
	for _, key := range more {
		all = append(all, s.Keys[key].text())
	}
	return all
}

// setRange writes nothing: the scripts only ask whether the server would.
func setRange(_ *Server, _ string, v Value, w []string) any {
	if w[1] != "" {
		return syntax
	}
	return int64(len(*cmp.Or(v.Text, new(string))))
}

func getRange(_ *Server, _ string, v Value, w []string) any {
	from, err1 := strconv.Atoi(w[0])
	to, err2 := strconv.Atoi(w[1])
	if err1 != nil || err2 != nil || from < 0 || to < 0 {
		return noInteger
	}
	if v.Text == nil {
		return ""
	}
	text := *v.Text
	return text[min(from, len(text)):min(to+1, len(text))]
}

func set(s *Server, key string, v Value, w []string) any {
	absent, get, at := false, false, int64(0)
	for i := 1; i < len(w); i++ {
		switch option := strings.ToUpper(w[i]); option {
		case "NX":
			absent = true
		case "GET":
			get = true
		case "KEEPTTL":
			at = v.At
		case "PX", "PXAT":
			if i++; i == len(w) {
				return syntax
			}
			n, err := strconv.ParseInt(w[i], 10, 64)
			if err != nil {
				return noInteger
			}
			if n <= 0 {
				return Error("ERR invalid expire time in 'set' command")
			}
			if at = n; option == "PX" {
				at += s.ms()
			}
		default:
			return syntax
		}
	}
	old := any(nil)
	if get {
		if t := v.Type(); t != "none" && t != "string" {
			return wrongType
		}
		old = v.text()
	}
	if absent && v.Type() != "none" {
		return old
	}
	s.Keys[key] = Value{Text: &w[0], At: at}
	if get {
		return old
	}
	return Status("OK")
}

func psetex(s *Server, key string, _ Value, w []string) any {
	n, err := strconv.ParseInt(w[0], 10, 64)
	if err != nil {
		return noInteger
	}
	if n <= 0 {
		return Error("ERR invalid expire time in 'psetex' command")
	}
	s.Keys[key] = Value{Text: &w[1], At: s.ms() + n}
	return Status("OK")
}

func add(one int64) func(s *Server, key string, v Value, _ []string) any {
	return func(s *Server, key string, v Value, _ []string) any {
		n := int64(0)
		if v.Text != nil {
			var err error
			if n, err = strconv.ParseInt(*v.Text, 10, 64); err != nil || n == math.MaxInt64 {
				return noInteger
			}
		}
		text := strconv.FormatInt(n+one, 10)
		s.Keys[key] = Value{Text: &text, At: v.At}
		return n + one
	}
}

func hmget(_ *Server, _ string, v Value, w []string) any {
	out := make([]any, len(w))
	for i, name := range w {
		out[i] = v.field(name)
	}
	return out
}

func hset(s *Server, key string, v Value, w []string) any {
	if len(w)%2 != 0 {
		return wrongCount
	}
	n := int64(0)
	hash := maps.Clone(v.Hash)
	if hash == nil {
		hash = make(map[string]string)
	}
	for i := 0; i < len(w); i += 2 {
		if _, ok := hash[w[i]]; !ok {
			n++
		}
		hash[w[i]] = w[i+1]
	}
	v.Hash = hash
	s.put(key, v)
	return n
}

func hdel(s *Server, key string, v Value, w []string) any {
	hash := maps.Clone(v.Hash)
	for _, name := range w {
		delete(hash, name)
	}
	n := int64(len(v.Hash) - len(hash))
	v.Hash = hash
	s.put(key, v)
	return n
}

func zadd(s *Server, key string, v Value, w []string) any {
	flags := 0
	for flags < len(w) && slices.Contains([]string{"XX", "GT", "CH"}, w[flags]) {
		flags++
	}
	set, w := w[:flags], w[flags:]
	if len(w) == 0 || len(w)%2 != 0 {
		return syntax
	}
	n, sorted := int64(0), clip(v.Sorted)
	for i := 0; i < len(w); i += 2 {
		score, err := strconv.ParseFloat(w[i], 64)
		if err != nil || math.IsNaN(score) {
			return noFloat
		}
		at := slices.IndexFunc(sorted, func(m Member) bool { return m.Name == w[i+1] })
		switch {
		case at < 0 && !slices.Contains(set, "XX"):
			sorted, n = append(sorted, Member{w[i+1], score}), n+1
		case at >= 0 && (score > sorted[at].Score || score < sorted[at].Score && !slices.Contains(set, "GT")):
			sorted[at].Score = score
			if slices.Contains(set, "CH") {
				n++
			}
		}
	}
	slices.SortFunc(sorted, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.Name, b.Name)) })
	v.Sorted = sorted
	s.put(key, v)
	return n
}

func zrem(s *Server, key string, v Value, w []string) any {
	left := slices.DeleteFunc(clip(v.Sorted), func(m Member) bool { return slices.Contains(w, m.Name) })
	n := int64(len(v.Sorted) - len(left))
	v.Sorted = left
	s.put(key, v)
	return n
}

func score(x float64) string {
	if n := int64(x); float64(n) == x {
		return strconv.FormatInt(n, 10)
	}
	return strconv.FormatFloat(x, 'g', 17, 64)
}

func zscore(_ *Server, _ string, v Value, w []string) any {
	for _, m := range v.Sorted {
		if m.Name == w[0] {
			return score(m.Score)
		}
	}
	return nil
}

// bound reads the end of a range of scores.
func bound(text string) (x float64, open bool, err error) {
	text, open = strings.CutPrefix(text, "(")
	x, err = strconv.ParseFloat(text, 64)
	return x, open, err
}

// between returns the members within a range of scores.
func (v Value) between(low, high string) (some []Member, failed any) {
	from, above, err1 := bound(low)
	to, below, err2 := bound(high)
	if err1 != nil || err2 != nil {
		return nil, Error("ERR min or max is not a float")
	}
	for _, m := range v.Sorted {
		if m.Score > from && m.Score < to || m.Score == from && !above && m.Score <= to && (m.Score < to || !below) ||
			m.Score == to && !below && m.Score > from {
			some = append(some, m)
		}
	}
	return some, nil
}

func zcount(_ *Server, _ string, v Value, w []string) any {
	some, failed := v.between(w[0], w[1])
	if failed != nil {
		return failed
	}
	return int64(len(some))
}

func zrange(_ *Server, _ string, v Value, w []string) any {
	from, err1 := strconv.Atoi(w[0])
	to, err2 := strconv.Atoi(w[1])
	if err1 != nil || err2 != nil || from < 0 || to < 0 {
		return noInteger
	}
	if len(v.Sorted) == 0 || from >= len(v.Sorted) || to < from {
		return list(nil, w[2:])
	}
	return list(v.Sorted[from:min(to+1, len(v.Sorted))], w[2:])
}

func zrangeByScore(_ *Server, _ string, v Value, w []string) any {
	some, failed := v.between(w[0], w[1])
	if failed != nil {
		return failed
	}
	return list(some, w[2:])
}

func zrevrangeByScore(_ *Server, _ string, v Value, w []string) any {
	some, failed := v.between(w[1], w[0])
	if failed != nil {
		return failed
	}
	some = clip(some)
	slices.Reverse(some)
	return list(some, w[2:])
}

// list makes the answer of a range: WITHSCORES and LIMIT are its options.
func list(some []Member, options []string) any {
	scores := false
	for i := 0; i < len(options); i++ {
		switch strings.ToUpper(options[i]) {
		case "WITHSCORES":
			scores = true
		case "LIMIT":
			if i+2 >= len(options) {
				return syntax
			}
			from, err1 := strconv.Atoi(options[i+1])
			count, err2 := strconv.Atoi(options[i+2])
			if err1 != nil || err2 != nil {
				return noInteger
			}
			some = some[min(from, len(some)):]
			if count >= 0 {
				some = some[:min(count, len(some))]
			}
			i += 2
		default:
			return syntax
		}
	}
	out := []any{}
	for _, m := range some {
		out = append(out, m.Name)
		if scores {
			out = append(out, score(m.Score))
		}
	}
	return out
}

// CanFail reports whether a command of a script may fail because of its keys, given that the
// commands before it ran. A command that needs a type of its key can fail, unless a command
// before it has given the key that type, found that type or no key, or removed the key. TIME can fail,
// since it is disabled on some servers. Failures that depend on the server and not on the keys
// (memory, rights, its role) occur at the first command that writes.
func CanFail(calls []Call, n int) bool {
	c := calls[n]
	if strings.ToUpper(c.Words[0]) == "TIME" {
		return true
	}
	if len(c.Words) < 2 {
		return false
	}
	cmd := commands[strings.ToUpper(c.Words[0])]
	if cmd == nil || cmd.keyless || cmd.needs == "" {
		return false
	}
	for _, before := range slices.Backward(calls[:n]) {
		if len(before.Words) < 2 || before.Failed != "" {
			continue
		}
		b := commands[strings.ToUpper(before.Words[0])]
		switch name := strings.ToUpper(before.Words[0]); {
		case b == nil || b.keyless:
		case (name == "DEL" || name == "EXISTS" && before.Reply == int64(0)) && slices.Contains(before.Words[1:], c.Words[1]):
			return false
		case before.Words[1] != c.Words[1]:
		case name == "SET" || name == "PSETEX":
			return cmd.needs != "string"
		case b.needs != "":
			return b.needs != cmd.needs
		}
	}
	return true
}
