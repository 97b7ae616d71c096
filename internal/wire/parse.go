package wire

import "bytes"

// ParseAcquire reads the JSON of an acquire that has the form that almost all have:
// one object of known fields, with strings of ASCII without escapes, whole numbers
// and truth values. It says what encoding/json says, which takes several times as
// long. ok is false for whatever else text is, right or wrong, and nothing is said.
func ParseAcquire(text []byte) (b Acquire, ok bool) {
	p := parser{rest: text}
	for p.field() {
		switch string(p.name) {
		case "leaseId":
			b.LeaseID = string(p.text())
		case "mode":
			b.Mode = known(modes, p.text())
		case "policy":
			b.Policy = known(policies, p.text())
		case "limit":
			b.Limit = p.small()
		case "permits":
			b.Permits = p.small()
		case "ttlMs":
			b.TTL = p.millis()
		case "waitMs":
			b.Wait = Millis(p.int())
		case "ticketMs":
			b.Ticket = p.millis()
		case "owner":
			b.Owner = string(p.text())
		case "reentrant":
			b.Reentrant = p.bool()
		case "since":
			p.is(b.Since.UnmarshalJSON(p.quoted()) == nil)
		case "minToken":
			b.MinToken = p.int()
		case "lockDelayMs":
			b.LockDelay = Millis(p.int())
		case "confirmMs":
			b.Confirm = Millis(p.int())
		case "notify":
			b.Notify = string(p.text())
		case "resize":
			b.Resize = p.bool()
		default:
			p.is(false)
		}
	}
	return b, p.ended()
}

// ParseRenew reads the JSON of a renewal as [ParseAcquire] reads that of an acquire.
func ParseRenew(text []byte) (b Renew, ok bool) {
	p := parser{rest: text}
	for p.field() {
		switch string(p.name) {
		case "key":
			b.Key = string(p.text())
		case "leaseId":
			b.LeaseID = string(p.text())
		case "ttlMs":
			b.TTL = p.millis()
		case "ticketMs":
			b.Ticket = p.millis()
		case "notify":
			b.Notify = string(p.text())
		case "minToken":
			b.MinToken = p.int()
		default:
			p.is(false)
		}
	}
	return b, p.ended()
}

// parser reads plain JSON of an object from its beginning. One that has met
// something else has failed, and reads nothing more.
type parser struct {
	rest   []byte
	name   []byte // of the field
	begun  bool
	failed bool
}

// field reads the name of the next field, if there is one.
func (p *parser) field() bool {
	first := !p.begun
	if p.begun = true; first {
		p.is(p.next('{'))
	}
	if p.next('}') {
		return false
	}
	p.is(first || p.next(','))
	p.name = p.text()
	p.is(p.next(':'))
	return !p.failed
}

// ended reports whether all was as it should be, to the end of the text.
func (p *parser) ended() bool {
	p.space()
	return !p.failed && len(p.rest) == 0
}

// is notes that something which has to be so is not.
func (p *parser) is(so bool) { p.failed = p.failed || !so }

func (p *parser) space() {
	for len(p.rest) > 0 && (p.rest[0] == ' ' || p.rest[0] == '\t' || p.rest[0] == '\r' || p.rest[0] == '\n') {
		p.rest = p.rest[1:]
	}
}

// next passes over c, if that comes next.
func (p *parser) next(c byte) bool {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// quoted reads a string, with its quotation marks.
func (p *parser) quoted() []byte {
	p.space()
	if len(p.rest) == 0 || p.rest[0] != '"' {
		p.failed = true
		return nil
	}
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"':
			text := p.rest[:i+1]
			p.rest = p.rest[i+1:]
			return text
		case c < ' ' || c > '~' || c == '\\':
			p.failed = true
			return nil
		}
	}
	p.failed = true
	return nil
}

// text reads a string.
func (p *parser) text() []byte {
	if q := p.quoted(); q != nil {
		return q[1 : len(q)-1]
	}
	return nil
}

// maxDigits is how many digits certainly make no number that is too large.
const maxDigits = 18

// int reads a whole number that is not negative.
func (p *parser) int() (n int64) {
	p.space()
	i := 0
	for ; i < len(p.rest) && p.rest[i] >= '0' && p.rest[i] <= '9'; i++ {
		n = n*10 + int64(p.rest[i]-'0')
		if i == maxDigits {
			p.failed = true
			return 0
		}
	}
	p.is(i == 1 || i > 1 && p.rest[0] != '0')
	p.rest = p.rest[i:]
	return n
}

func (p *parser) small() int {
	n := p.int()
	p.is(n <= 1<<31-1) // also where an int is no larger
	return int(n)
}

func (p *parser) millis() *Millis {
	m := Millis(p.int())
	return &m
}

func (p *parser) bool() bool {
	p.space()
	if rest, ok := bytes.CutPrefix(p.rest, []byte("true")); ok {
		p.rest = rest
		return true
	}
	rest, ok := bytes.CutPrefix(p.rest, []byte("false"))
	p.is(ok)
	p.rest = rest
	return false
}

// known is a text, without a copy of its own if it is one of names.
func known(names []string, text []byte) string {
	for _, name := range names {
		if name == string(text) {
			return name
		}
	}
	return string(text)
}
