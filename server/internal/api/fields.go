package api

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/server/internal/check"
)

// visitPattern is what the name of a visit looks like.
const visitPattern = `^[A-Za-z0-9_./-]*$`

// idPattern is what a lease id looks like.
var idPattern = fmt.Sprintf(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,%d}$`, check.MaxID-1)

// millis is a duration that a request gives.
func millis(text string, low, high time.Duration) Object {
	return Object{"description": text, "minimum": low.Milliseconds(), "maximum": high.Milliseconds()}
}

// text describes a field that has no bounds of its own. Some hundred calls would make the
// binary larger if they were inlined.
//
//go:noinline
func text(description string) Object { return Object{"description": description} }

// and returns a description with more to it.
//
//go:noinline
func (o Object) and(key string, value any) Object {
	o = maps.Clone(o)
	o[key] = value
	return o
}

// with returns fields with one more.
func with(all map[string]Object, name string, o Object) map[string]Object {
	all = maps.Clone(all)
	all[name] = o
	return all
}

// Descriptions that several types share.
var (
	leaseID    = text("The lease, or the ticket that becomes one").and("pattern", idPattern)
	key        = text("The lock, unless the path names it").and("maxLength", check.MaxName)
	mode       = text("How the lock is, or is to be, held").and("enum", []string{"exclusive", "shared"})
	token      = text("The fencing token: greater than every token given before for the lock. 0 if the store mints none")
	clockUs    = text("The store's clock at the answer, in microseconds since an origin of its own")
	holders    = text("Who holds the lock, some of them, for those who may read")
	broken     = text("The lease was ended by force")
	reason     = text("Why it was ended by force").and("maxLength", check.MaxReason)
	labels     = text("Shown to those who may read. At most 8 KiB as JSON")
	freeIn     = text("When the obstacle may end by itself; absent if that is not known")
	askAgain   = text("When asking again may be of use")
	byTheirs   = "by its own clock, for people to read"
	repeated   = text("The store left a request unanswered, which may still be on its way: release the lease id, which is then refused")
	whatIsLeft = "What is left of it unless it is renewed, as the answer is sent"
)

// fields returns what the document says of the fields of each type. It is made for the
// first who asks, because every command would make it at its start.
var fields = sync.OnceValue(func() map[string]map[string]Object {
	// leaseFields are those of the answer about one lease or ticket.
	leaseFields := map[string]Object{
		"key": text("The lock"), "leaseId": leaseID,
		"state": text("What it is now").and("enum", []string{"gone", "busy", "queued", "held", "released", "left", "resized"}),
		"again": text("It had been granted before, by a request of the same lease id, or had been released"), "repeated": repeated,
		"token": token, "holds": text("How many leases the same owner has on the lock, with this one"),
		"ttlMs": text("The time to live that was asked for"), "remainingMs": text(whatIsLeft),
		"position": text("The place in the queue, 1 for the head"), "freeInMs": freeIn,
		"ticketMs": text("How long the place is kept"), "retryAfterMs": text("When to ask again, so that the place is kept"),
		"clockUs": clockUs, "holders": holders, "broken": broken, "reason": reason,
	}
	lock := map[string]Object{
		"key": text("The name of the lock"), "state": text("Whether somebody holds it").and("enum", []string{"held", "closed", "free"}),
		"token": text("The last fencing token that was given; 0 if that is not known"), "limit": text("The limit in force"),
		"closedMs": text("How much longer it stays closed with nobody inside"),
		"holders":  text("Who holds it"), "waiters": text("Who waits, in the order in which they will be served"),
	}
	row := maps.Clone(lock)
	maps.Copy(row, map[string]Object{
		"holders": text("Who holds it: the 3 oldest leases in a view, else 200 at most"), "waiters": text("The first who wait: 1 in a view, else 200 at most"),
		"held": text("How many leases there are"), "used": text("The places that are taken"), "queue": text("How many wait"),
		"agoMs": text("How long ago it was looked at"), "looked": text("False while only the name is known"), "failed": text("The last look failed"),
	})
	return map[string]map[string]Object{
		"Acquire": {
			"key":         key,
			"leaseId":     text("Chosen by the client, unique per acquisition: repeating the request with it has the effect of one. Made by the service if absent").and("pattern", idPattern),
			"mode":        mode.and("default", "exclusive"),
			"policy":      text("Whom the request lets pass among those who wait").and("enum", []string{"fifo", "barging", "writers-first", "readers-first"}).and("default", "fifo"),
			"limit":       text("The places of a semaphore; 0 for none. All who use the lock state the same").and("minimum", 0).and("maximum", 1<<31-1),
			"permits":     text("The places that are taken of them; 0 counts as 1").and("minimum", 0).and("maximum", 1<<31-1),
			"ttlMs":       millis("The time to live of the lease", check.MinTTL, 24*time.Hour).and("default", check.DefaultTTL.Milliseconds()),
			"waitMs":      millis("How long the answer may be held back until the lock is granted", 0, 24*time.Hour),
			"ticketMs":    millis("How long the place in the queue is kept after the answer, or after the connection was lost if it is given. Default 0 without waitMs, else 3000 after an answer", 0, check.MaxTicket),
			"owner":       text("Who asks, for people to read. Default: the name of the principal, or the address").and("maxLength", check.MaxOwner),
			"reentrant":   text("The owner is an identity: it may enter where it holds the lock already"),
			"labels":      labels,
			"since":       text("When the client began to ask, " + byTheirs),
			"minToken":    text("The token is to be greater than this").and("minimum", 0).and("maximum", int64(1<<53-1)),
			"lockDelayMs": millis("How long the lock stays closed after the lease was lost or broken", 0, 24*time.Hour),
			"confirmMs":   millis("Within what time a lock that is handed over is to be confirmed by a renewal", 0, check.MaxTicket),
			"notify":      text("The address of an event stream, on which the client is told when its turn has come").and("maxLength", check.MaxName),
			"visit": text("A name of this request and its repetitions: a release that gives it ends what nobody else has asked for with the same lease id. "+
				"Words between slashes").and("maxLength", check.MaxVisit).and("pattern", visitPattern),
			"ordered":   text("Insist on the order of the policy: refused where the store keeps no queue"),
			"resize":    text("Put limit in force and take nothing. If a request is not answered, release its leaseId: it then has no effect if it arrives late"),
			"downgrade": text("Make a shared lease of the exclusive one of this leaseId, and take nothing: 410 if it has ended"),
		},
		"Renew": {
			"key":      key,
			"leaseId":  text("The lease, unless the path names it").and("pattern", idPattern),
			"ttlMs":    millis("The new time to live, from now on", check.MinTTL, 24*time.Hour).and("default", check.DefaultTTL.Milliseconds()),
			"ticketMs": millis("How long a place in the queue is kept from now on", 0, check.MaxTicket).and("default", check.DefaultTicket.Milliseconds()),
			"notify":   text("The address of an event stream").and("maxLength", check.MaxName),
			"visit":    text("The visit of the acquire, if it had one: the lease then stays one that this visit can end").and("maxLength", check.MaxVisit).and("pattern", visitPattern),
			"minToken": text("Raises the token of the lease to this").and("minimum", 0).and("maximum", int64(1<<53-1)),
			"level":    text("The token becomes minToken also where it is greater; tokens to come are above both"),
		},
		"Renewals": {"leases": text("Up to what fits into a body")},
		"Release": {
			"key":      key,
			"leaseId":  text("The lease, or the ticket").and("pattern", idPattern),
			"keepMs":   millis("How long the lock stays closed, for jobs that are shorter than the clocks of their hosts differ", 0, check.MaxTTL),
			"forbidMs": text("For how long the lease id is refused, so that a late repetition of its acquire takes nothing. 60000 is always allowed").and("minimum", 0).and("default", 60000),
			"visit":    text("End the lease or place only if it was asked for by the visit of this name, and a lease by no other").and("maxLength", check.MaxVisit).and("pattern", visitPattern),
		},
		"Break": {
			"key":     key,
			"leaseId": text("The lease to be ended, and no other").and("pattern", idPattern),
			"reason":  text("What its holder is told").and("minLength", 1).and("maxLength", check.MaxReason),
		},
		"Lease":   leaseFields,
		"Renewed": {"leases": text("One answer for each lease, in the same order")},
		"Renewal": with(with(leaseFields, "state", text("As in Lease; empty with a problem")), "problem", text("What a single renewal would have been answered with")),
		"Lock":    lock,
		"Holder": {
			"leaseId": text("Its lease; another library's lock has an id of its own"), "owner": text("Who holds the lease"), "mode": mode,
			"weight": text("The places that it takes"), "token": token, "since": text("When it was granted, " + byTheirs),
			"ageMs": text("For how long it has been held, as well as two clocks can tell"), "remainingMs": text(whatIsLeft),
			"labels": labels, "confirmed": text("False while a lock that was handed over awaits its confirmation"),
			"foreign": text("Another library's lock"),
		},
		"Waiter": {
			"position": text("The place in the queue, 1 for the head"), "leaseId": leaseID, "owner": text("Who waits"), "mode": mode,
			"weight": text("The places that it asks for"), "since": text("When it began to wait, " + byTheirs),
			"waitedMs": text("For how long it has waited, as well as two clocks can tell"), "remainingMs": text("When the place is forgotten unless it is kept"),
			"labels": labels,
		},
		"Locks": {
			"keys":   text("Names of locks, each once on a page; one may come again on another"),
			"cursor": text("What to send for the next page; absent on the last"),
		},
		"Problem": {
			"type": text("The cause: an address that documents it").and("format", "uri"), "title": text("The cause in words"),
			"status": text("That of the answer"), "detail": text("What was wrong, for people to read"),
			"key": text("The lock"), "leaseId": text("The lease"), "retryAfterMs": askAgain, "freeInMs": freeIn,
			"holders": holders, "clockUs": clockUs, "repeated": repeated, "broken": broken, "reason": reason,
		},
		"Health": {"status": text("ok"), "service": text("What runs here")},
		"Executed": {
			"success": text("The operation was done, and the lease was valid to its end"), "resourceId": text("The resource"),
			"durationMs": text("How long the operation takes"),
		},
		"Locked":   {"error": text("Why the operation was not begun"), "retryAfterMs": askAgain},
		"NoQuorum": {"error": text("Why the operation was not begun"), "message": text("The same, in more words")},
		// What the page shows.
		"View": {
			"rows": text("Locks that are held or waited for"), "cursor": text("That of the next view; absent after the last"),
			"principal": text("Who asks, empty where nobody need be known"), "mode": text("Whether the page may offer to break leases").and("enum", []string{"read", "full"}),
		},
		"Row": row, "One": with(row, "mayBreak", text("The page may offer the caller to break a lease")),
		"Vitals": {
			"store": text("The address of the store, without secrets"), "since": text("When the service started"),
			"roundTripUs": text("How long the store took to answer"), "failing": text("It did not answer"),
			"checked": text("When the store was asked what makes locks in it unsafe; absent if it cannot tell"), "problem": text("Why it could not be asked"),
			"findings": text("What it said"), "nodes": text("The servers behind it"),
		},
		"Finding": {
			"severity": text("How bad it is").and("enum", []string{"ok", "notice", "warning", "unsafe"}), "check": text("A word for what was looked at"),
			"subject": text("The server that is meant"), "what": text("How it is"), "why": text("What that means for locks"), "remedy": text("What to do"),
		},
		"Node": {"name": text("Where it is"), "server": text("What identifies the running server")},
	}
})
