package api

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/server/internal/check"
)

// visitPattern matches the names of visits.
const visitPattern = `^[A-Za-z0-9_./-]*$`

// idPattern matches lease ids.
var idPattern = fmt.Sprintf(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,%d}$`, check.MaxID-1)

// millis describes a duration in a request, with its bounds.
func millis(text string, low, high time.Duration) Object {
	return Object{"description": text, "minimum": low.Milliseconds(), "maximum": high.Milliseconds()}
}

// text describes a field that has no bounds of its own. Some hundred calls would make the
// binary larger if they were inlined.
//
//go:noinline
func text(description string) Object { return Object{"description": description} }

// and returns a description with one more keyword.
//
//go:noinline
func (o Object) and(key string, value any) Object {
	o = maps.Clone(o)
	o[key] = value
	return o
}

// with returns fields with one more field.
func with(all map[string]Object, name string, o Object) map[string]Object {
	all = maps.Clone(all)
	all[name] = o
	return all
}

// Descriptions that several types share.
var (
	leaseID    = text("The lease, or the ticket that becomes one").and("pattern", idPattern)
	key        = text("The lock, unless the path names it").and("maxLength", check.MaxName)
	mode       = text("The mode in which the lock is held or asked for").and("enum", []string{"exclusive", "shared"})
	token      = text("The fencing token: greater than all earlier tokens of the lock. 0 if the store mints no tokens")
	clockUs    = text("The store's clock at the answer, in microseconds since an origin of its own")
	holders    = text("Some of the holders of the lock, if the client may read it")
	broken     = text("The lease was ended by force")
	reason     = text("The reason why the lease was ended by force").and("maxLength", check.MaxReason)
	labels     = text("Shown to clients that may read. At most 8 KiB as JSON")
	freeIn     = text("When the lock may become free without a release; absent if unknown")
	askAgain   = text("When to ask again")
	byTheirs   = "by its own clock, for people to read"
	repeated   = text("The store left a request unanswered, which may still be on its way: release the lease id, which is then refused")
	whatIsLeft = "The time that is left when the answer is sent, unless the lease is renewed"
)

// fields returns the descriptions of the fields of each type. They are made at the first call,
// so that commands that do not need them start faster.
var fields = sync.OnceValue(func() map[string]map[string]Object {
	// leaseFields are the fields of the answer about one lease or ticket.
	leaseFields := map[string]Object{
		"key": text("The lock"), "leaseId": leaseID,
		"state": text("The state of the lease or ticket").and("enum", []string{"gone", "busy", "queued", "held", "released", "left", "resized"}),
		"again": text("A request of the same lease id was granted before, or the lease had been released before"), "repeated": repeated,
		"token": token, "holds": text("How many leases the same owner has on the lock, with this one"),
		"ttlMs": text("The requested time to live"), "remainingMs": text(whatIsLeft),
		"position": text("The place in the queue, 1 for the head"), "freeInMs": freeIn,
		"ticketMs": text("How long the place is kept"), "retryAfterMs": text("When to ask again, so that the place is kept"),
		"clockUs": clockUs, "holders": holders, "broken": broken, "reason": reason,
	}
	lock := map[string]Object{
		"key": text("The name of the lock"), "state": text("Held, closed after a loss or release, or free").and("enum", []string{"held", "closed", "free"}),
		"token": text("The last fencing token of the lock; 0 if unknown"), "limit": text("The limit in force"),
		"closedMs": text("How much longer the lock stays closed without a holder"),
		"holders":  text("The holders"), "waiters": text("The waiters, in the order in which they will be served"),
	}
	row := maps.Clone(lock)
	maps.Copy(row, map[string]Object{
		"holders": text("The holders: the 3 oldest leases in a view, else 200 at most"), "waiters": text("The first waiters: 1 in a view, else 200 at most"),
		"held": text("The number of leases"), "used": text("The number of permits in use"), "queue": text("The number of waiters"),
		"agoMs": text("How old the state is"), "looked": text("False until the store has returned the state"), "failed": text("The last request for the state failed"),
		"problem": text("Why the record of the lock cannot be read"),
	})
	return map[string]map[string]Object{
		"Acquire": {
			"key":         key,
			"leaseId":     text("Chosen by the client, unique per acquisition: repeating the request with it has the effect of one. Made by the service if absent").and("pattern", idPattern),
			"mode":        mode.and("default", "exclusive"),
			"policy":      text("The order in which the request and other waiters are served").and("enum", []string{"fifo", "barging", "writers-first", "readers-first"}).and("default", "fifo"),
			"limit":       text("The permits of a semaphore; 0 for a lock without a limit. All clients of the lock must state the same").and("minimum", 0).and("maximum", 1<<31-1),
			"permits":     text("The number of permits to take; 0 counts as 1").and("minimum", 0).and("maximum", 1<<31-1),
			"ttlMs":       millis("The time to live of the lease", check.MinTTL, 24*time.Hour).and("default", check.DefaultTTL.Milliseconds()),
			"waitMs":      millis("How long the answer may be held back until the lock is granted", 0, 24*time.Hour),
			"ticketMs":    millis("How long the place in the queue is kept after the answer and, if given, after the loss of the connection. Default 0 without waitMs, else 3000 after an answer", 0, check.MaxTicket),
			"owner":       text("The name of the client, for people to read. Default: the name of the principal, or the address").and("maxLength", check.MaxOwner),
			"reentrant":   text("The owner is an identity: it is granted the lock again if it holds it already"),
			"labels":      labels,
			"since":       text("When the client began to ask, " + byTheirs),
			"minToken":    text("The token must be greater than this").and("minimum", 0).and("maximum", int64(1<<53-1)),
			"lockDelayMs": millis("How long the lock stays closed after the lease was lost or broken", 0, 24*time.Hour),
			"confirmMs":   millis("The time in which a renewal must confirm a lock that is handed over", 0, check.MaxTicket),
			"notify":      text("The address of an event stream, which receives a hint when it is the client's turn").and("maxLength", check.MaxName),
			"visit": text("A name of this request and its repetitions: a release with it ends the lease only if no other visit asked for the same lease id. "+
				"Words between slashes").and("maxLength", check.MaxVisit).and("pattern", visitPattern),
			"ordered":   text("Require the order of the policy: refused if the store keeps no queue"),
			"resize":    text("Set the limit without taking the lock. If a request is not answered, release its leaseId: it then has no effect if it arrives late"),
			"downgrade": text("Turn the exclusive lease of this leaseId into a shared one, without taking the lock: 410 if the lease has ended"),
		},
		"Renew": {
			"key":      key,
			"leaseId":  text("The lease, unless the path names it").and("pattern", idPattern),
			"ttlMs":    millis("The new time to live, from now on", check.MinTTL, 24*time.Hour).and("default", check.DefaultTTL.Milliseconds()),
			"ticketMs": millis("How long a place in the queue is kept from now on", 0, check.MaxTicket).and("default", check.DefaultTicket.Milliseconds()),
			"notify":   text("The address of an event stream").and("maxLength", check.MaxName),
			"visit":    text("The visit of the acquire, if it had one: a release with this visit can then still end the lease").and("maxLength", check.MaxVisit).and("pattern", visitPattern),
			"minToken": text("Raises the token of the lease to this").and("minimum", 0).and("maximum", int64(1<<53-1)),
			"level":    text("The token becomes minToken even if it is greater; later tokens are greater than both"),
		},
		"Renewals": {"leases": text("Any number that fits into a body")},
		"Release": {
			"key":      key,
			"leaseId":  text("The lease, or the ticket").and("pattern", idPattern),
			"keepMs":   millis("How long the lock stays closed, for jobs that are shorter than the clocks of their hosts differ", 0, check.MaxTTL),
			"forbidMs": text("How long the lease id is refused, so that a late repetition of its acquire has no effect. 60000 is always allowed").and("minimum", 0).and("default", 60000),
			"visit":    text("End the lease or place only if the visit of this name asked for it, and for a lease no other visit did").and("maxLength", check.MaxVisit).and("pattern", visitPattern),
		},
		"Break": {
			"key":     key,
			"leaseId": text("The lease to end").and("pattern", idPattern),
			"reason":  text("The reason that its holder receives").and("minLength", 1).and("maxLength", check.MaxReason),
		},
		"Lease":   leaseFields,
		"Renewed": {"leases": text("One answer for each lease, in the same order")},
		"Renewal": with(with(leaseFields, "state", text("As in Lease; empty with a problem")), "problem", text("The problem with which a single renewal would have been answered")),
		"Lock":    lock,
		"Holder": {
			"leaseId": text("The id of the lease; a lock of another library has an id of another form"), "owner": text("The name of the holder"), "mode": mode,
			"weight": text("The permits that it takes"), "token": token, "since": text("When it was granted, " + byTheirs),
			"ageMs": text("How long it has been held, as exact as the clocks of client and store agree"), "remainingMs": text(whatIsLeft),
			"labels": labels, "confirmed": text("False until a lock that was handed over is confirmed"),
			"foreign": text("The lock is held by another library"),
		},
		"Waiter": {
			"position": text("The place in the queue, 1 for the head"), "leaseId": leaseID, "owner": text("The name of the waiter"), "mode": mode,
			"weight": text("The permits that it asks for"), "since": text("When it began to wait, " + byTheirs),
			"waitedMs": text("How long it has waited, as exact as the clocks of client and store agree"), "remainingMs": text("When the place expires unless it is kept"),
			"labels": labels,
		},
		"Locks": {
			"keys":   text("Names of locks, each once on a page; a name may appear again on another page"),
			"cursor": text("The cursor of the next page; absent on the last page"),
		},
		"Problem": {
			"type": text("The cause: an address that documents it").and("format", "uri"), "title": text("The cause in words"),
			"status": text("The status of the answer"), "detail": text("The details, for people to read"),
			"key": text("The lock"), "leaseId": text("The lease"), "retryAfterMs": askAgain, "freeInMs": freeIn,
			"holders": holders, "clockUs": clockUs, "repeated": repeated, "broken": broken, "reason": reason,
		},
		"Health": {"status": text("ok"), "service": text("The name of the service")},
		"Executed": {
			"success": text("The operation was done, and the lease was valid to its end"), "resourceId": text("The resource"),
			"durationMs": text("How long the operation takes"),
		},
		"Locked":   {"error": text("Why the operation was not begun"), "retryAfterMs": askAgain},
		"NoQuorum": {"error": text("Why the operation was not begun"), "message": text("The same, in more words")},
		// The types of the page.
		"View": {
			"rows": text("Locks that are held or waited for"), "cursor": text("The cursor of the next view; absent in the last view"),
			"principal": text("The name of the caller, empty without authentication"), "mode": text("Whether the page may offer to break leases").and("enum", []string{"read", "full"}),
		},
		"Row": row, "One": with(row, "mayBreak", text("The page may offer the caller to break a lease")),
		"Vitals": {
			"store": text("The address of the store, without secrets"), "since": text("When the service started"),
			"roundTripUs": text("How long the store took to answer"), "failing": text("The last request to the store failed, or there was none"), "busy": text("No request was sent, because the pages send too many"),
			"checked": text("When the store was last checked for conditions that make its locks unsafe; absent if it cannot be checked"), "problem": text("Why the check failed, or was not made"),
			"findings": text("The results of the check"), "nodes": text("The servers behind the store"),
		},
		"Finding": {
			"severity": text("The severity").and("enum", []string{"ok", "notice", "warning", "unsafe"}), "check": text("A word for the subject of the check"),
			"subject": text("The server, if the finding is about one"), "what": text("The state that was found"), "why": text("The effect on locks"), "remedy": text("The remedy"),
		},
		"Node": {"name": text("The address"), "server": text("The identity of the running server")},
	}
})
