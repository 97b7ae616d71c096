package drivertest

import (
	"fmt"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
)

// tricky returns keys that careless stores confuse with one another, or with
// their own syntax.
func (l *lab) tricky() []string {
	long := l.tag + strings.Repeat("x", 512-len(l.tag)-1)
	keys := []string{".", "..", "*", "?", long + "1", long + "2", long, strings.Repeat("日", 170)}
	for _, s := range []string{
		"", "a", "A", "a:", "a:b", "a:b:c", "a{b}", "{a}b", "{a", "a}", "{}", "{}a", "a{b}{c}", "{a}{b}",
		" ", "a ", " a", "a  b", "a b", "/", "a/", "a/b", "a//b", "a/../b", "a\\b", "a%2Fb", "a%b", "a+b", "a&b=c", "a?b", "a#b",
		"é", "e\u0301", "É", "日本", "🔒", "\u00a0", "*", "[a]", "[^b]", "~a", "a~", "#", "'", `"`, "$a", "a.lock", "a.json", "a.tmp",
		"-", "--", "nul", "true", "0", "00",
	} {
		keys = append(keys, l.tag+s, s+l.tag)
	}
	return keys
}

// keyRows test keys, owners and labels of any text.
var keyRows = []row{
	{"key/any name is a room of its own", 0,
		"two keys that share one room block each other without a visible reason; one key with two rooms has two holders",
		func(l *lab, p, q *process) {
			held := map[string]string{}
			for i, key := range l.tricky() {
				if _, twice := held[key]; twice {
					continue
				}
				held[key] = fmt.Sprintf("a%d", i)
				p.acquire(held[key], driver.Granted, in(key), ttl(2*long))
			}
			for key := range held {
				q.acquire("not-"+held[key], driver.Busy, in(key))
			}
			for key, name := range held {
				q.renew(name, driver.Granted, at(key))
				q.release(name, driver.Released, at(key))
			}
		}},
	{"key/an id is known in its own room only", 0,
		"a release with the wrong key must not end a lease elsewhere",
		func(l *lab, p, q *process) {
			p.acquire("a", driver.Granted)
			p.acquire("b", driver.Granted, in(l.key+"/2"))
			p.renew("a", driver.Gone, at(l.key+"/2"))
			p.release("a", driver.Gone, at(l.key+"/2"))
			p.renew("a", driver.Granted)
		}},
	{"key/odd owners and labels", 0,
		"the text of owners and labels must never change the behaviour of a lock",
		func(l *lab, p, q *process) {
			for i, text := range []string{
				"", " ", "a b", `"`, `\`, "{}", "'; DROP", "日本 🔒", "%s%d", "-", "*", "0", strings.Repeat("o", 256),
			} {
				key := fmt.Sprintf("%s/%d", l.key, i)
				name := fmt.Sprintf("a%d", i)
				p.acquire(name, driver.Granted, in(key), owner(text), labels(map[string]string{"k": text, text: "v"}))
				q.acquire("not-"+name, driver.Busy, in(key), owner(text))
				q.renew(name, driver.Granted, at(key))
				q.release(name, driver.Released, at(key))
			}
		}},
}
