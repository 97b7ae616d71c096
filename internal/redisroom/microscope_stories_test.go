package redisroom

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// story is a sequence of steps that is too long for an exploration. Every step is compared with
// the rule.
type story struct {
	name  string
	steps []step
}

// waits returns a step in which time passes.
func waits(d time.Duration) step { return step{name: "wait " + d.String(), wait: d} }

func delays(req *driver.Request) { req.LockDelay = lensDelay }

func lasting(ttl time.Duration) func(*driver.Request) {
	return func(req *driver.Request) { req.TTL = ttl }
}

func queuesFor(d time.Duration) func(*driver.Request) {
	return func(req *driver.Request) { req.TicketTTL = d }
}

// in is a row of steps.
func in(rows ...[]step) []step { return slices.Concat(rows...) }

func then(steps ...step) []step { return steps }

var stories = []story{
	{"a second delay is over later", in(
		ask(allOf(reads, delays), parties[0]), then(waits(100*time.Millisecond)), ask(allOf(reads, delays), parties[1]),
		then(waits(950*time.Millisecond)), ask(nil, parties[2]), then(waits(100*time.Millisecond)), ask(nil, parties[2]),
		then(waits(150*time.Millisecond)), ask(nil, parties[2]), then(waits(60*time.Millisecond)), ask(nil, parties[2]),
	)},
	{"a head has more than its window left", in(
		ask(reads, parties[0]), ask(queues, parties[1]), then(waits(lensTicket-lensWindow-time.Millisecond)), ask(reads, parties[2]),
		then(waits(lensWindow)), ask(reads, parties[2]), then(waits(time.Millisecond)), ask(reads, parties[2]),
	)},
	{"a waiter enters, and the next is told when somebody else's lease ends", in(
		ask(places(1, 2), parties[2]), then(waits(100*time.Millisecond)), ask(places(1, 2), parties[0]), then(waits(600*time.Millisecond)),
		ask(allOf(places(1, 2), queues), parties[1]), ask(allOf(places(2, 2), queues), stranger), then(waits(100*time.Millisecond)),
		each(releases, parties[0]), each(renews, parties[1], stranger), each(releases, parties[1]), each(renews, stranger),
	)},
	{"a waiter with an owner gets the lock after one without", in(
		ask(nil, parties[0]), ask(allOf(queues, owner("me")), parties[1]), each(releases, parties[0]), ask(owner("me"), parties[2]),
	)},
	{"a process is suspect for a minute", in(
		ask(nil, parties[0]), ask(queuesFor(lensTTL+30*time.Minute), parties[1]), each(releases, parties[0]), then(waits(lensWindow)), ask(lasting(2*time.Minute), parties[2]),
		then(waits(time.Minute-time.Millisecond)), ask(nil, parties[0]), then(waits(time.Millisecond)), ask(nil, parties[0]),
	)},
	{"a suspect asks for its second ticket, behind another's", in(
		ask(nil, parties[0]), ask(queues, parties[1]), each(releases, parties[0]), ask(queues, parties[2], parties[0], stranger),
		then(waits(lensWindow)), each(renews, parties[2], stranger), ask(nil, parties[1]),
	)},
	{"half an hour has passed, and a waiter comes", in(
		ask(nil, parties[0]), ask(queues, parties[1]), each(renews, driver.Ref{ID: idA, TTL: 29 * time.Minute}), then(waits(29*time.Minute-time.Second)),
		ask(queuesFor(halfHour-time.Millisecond), parties[2]), ask(queuesFor(halfHour), stranger),
	)},
	{"half an hour has passed, and a reader comes", in(
		ask(reads, parties[0]), each(renews, driver.Ref{ID: idA, TTL: 29 * time.Minute}), then(waits(29*time.Minute-time.Second)),
		ask(allOf(reads, lasting(halfHour-time.Second-time.Millisecond)), parties[2]), ask(allOf(reads, lasting(halfHour-time.Second)), stranger),
	)},
	{"half an hour has passed, and a lease is renewed", in(
		ask(nil, parties[0]), ask(queues, parties[1]), each(renews, driver.Ref{ID: idA, TTL: 29 * time.Minute}), then(waits(29*time.Minute-time.Second)),
		ask(nil, parties[2]), each(renews, driver.Ref{ID: idA, TTL: halfHour - time.Millisecond}, driver.Ref{ID: idA, TTL: halfHour}),
	)},
	{"half an hour has passed, and a waiter asks again", in(
		ask(nil, parties[0]), ask(queues, parties[1]), each(renews, driver.Ref{ID: idB, HintAddress: "B", TicketTTL: 29 * time.Minute}, driver.Ref{ID: idA, TTL: 29 * time.Minute}),
		then(waits(29*time.Minute-time.Second)),
		each(renews, driver.Ref{ID: idB, HintAddress: "B", TicketTTL: halfHour - time.Millisecond}, driver.Ref{ID: idB, HintAddress: "B", TicketTTL: halfHour}),
	)},
	{"two leases have different delays", in(
		ask(allOf(reads, delays), parties[0]), then(waits(100*time.Millisecond)),
		ask(allOf(reads, func(req *driver.Request) { req.LockDelay = 100 * time.Millisecond }), parties[1]),
		then(waits(910*time.Millisecond)), ask(nil, parties[2]), then(waits(100*time.Millisecond)), ask(nil, parties[2]), then(waits(100*time.Millisecond)), ask(nil, parties[2]),
	)},
	{"a delay of a millisecond, after a break", in(ask(briefly, parties[0]), then(breaks(idA)), ask(nil, parties[1]), then(waits(time.Millisecond)), ask(nil, parties[1]))},
	{"a delay of a millisecond, after the end", in(ask(briefly, parties[0]), then(waits(lensTTL)), ask(nil, parties[1]), then(waits(time.Millisecond)), ask(nil, parties[1]))},
	{"a room is kept closed for a millisecond", in(ask(briefly, parties[0]), each(releases, driver.Ref{ID: idA, KeepClosed: time.Millisecond}), ask(nil, parties[1]))},
	{"the one who came later leaves", in(
		ask(reads, parties[0]), then(waits(100*time.Millisecond)), ask(reads, parties[2]), ask(queues, parties[1]), each(releases, parties[2]),
	)},
	headThatAsksAgain(driver.FIFO), headThatAsksAgain(driver.WritersFirst),
	headWithItsWindow(driver.FIFO), headWithItsWindow(driver.WritersFirst),
	{"the token of a record is raised above what it outlives", in(
		ask(nil, parties[0]), ask(queues, parties[1]), each(renews, driver.Ref{ID: idA, Token: lensStart + (40 * time.Minute).Microseconds()}),
		each(renews, driver.Ref{ID: idA, Token: lensStart + (2 * time.Hour).Microseconds()}),
	)},
	{"the first of two waiters has given up, and a renewal saw it", in(
		ask(nil, parties[0]), ask(queuesFor(250*time.Millisecond), parties[1]), ask(queues, stranger), then(waits(300*time.Millisecond)),
		each(renews, parties[0]), ask(nil, parties[2]),
	)},
	{"a reader without an address is the head, and fits", in(
		ask(places(1, 2), parties[0], parties[1]), ask(allOf(places(1, 2), queues), parties[2]), each(releases, parties[0]),
		ask(places(1, 2), stranger), ask(allOf(places(1, 2), queues), stranger), each(renews, parties[2], stranger),
	)},
	{"a waiter without an address is passed by nobody", in(
		ask(nil, parties[0]), ask(queues, parties[2]), each(releases, parties[0]), ask(nil, parties[1]), ask(reads, parties[1]), ask(queues, parties[1]), each(renews, parties[2]),
	)},
	{"a least token is a day ahead", in(ask(atLeast(24*time.Hour), parties[0]), each(releases, parties[0]), ask(nil, parties[1]))},
	{"a token is raised by a day", in(ask(nil, parties[0]), each(renews, driver.Ref{ID: idA, Token: lensStart + (24 * time.Hour).Microseconds()}))},
	{"a token is raised by more than a day", in(ask(nil, parties[0]), each(renews, driver.Ref{ID: idA, Token: lensStart + (24 * time.Hour).Microseconds() + 1}))},
	{"a place is heavier than the limit", in(ask(places(2, 1), parties[0]), ask(allOf(places(2, 1), queues), parties[1]))},
	{"places between taken ones are given", in(
		ask(places(1, 5), parties[0]), ask(places(1, 5), parties[1]), ask(places(2, 5), parties[2]), each(releases, parties[0]),
		ask(places(2, 5), stranger), each(releases, parties[2]), ask(allOf(places(3, 5), queues), parties[0]), ask(allOf(places(2, 5), queues), parties[2]),
		each(releases, stranger), each(renews, parties[0]), each(releases, parties[1]), each(renews, parties[2]), each(releases, parties[0]),
	)},
	{"as many places as have numbers", in(
		ask(places(driver.MaxNumbered-1, driver.MaxNumbered), parties[0]), ask(places(1, driver.MaxNumbered), parties[1]),
		each(releases, parties[0]), ask(places(1, driver.MaxNumbered), parties[2]),
	)},
	{"more places than have numbers", in(
		ask(places(1, driver.MaxNumbered+1), parties[0]), ask(places(1, driver.MaxNumbered+1), parties[1]), then(resizes(2)),
		ask(allOf(places(1, 2), queues), parties[2]), each(releases, parties[0]), each(renews, parties[2]),
	)},
	{"a hand-over is asked for again", in(
		ask(nil, parties[0]), ask(queues, parties[1]), each(releases, parties[0]), ask(queues, parties[1]), ask(queues, parties[1]),
	)},
	{"a limit is made and lifted", in(ask(reads, parties[0]), then(resizes(3)), each(releases, parties[0]), ask(places(1, 2), parties[0]), then(resizes(0)), then(resizes(2)))},
	{"a change of the limit is rejected for a while", in(
		ask(places(1, 2), parties[0]), each(releases, driver.Ref{ID: "resizer", RejectIDFor: lensForbid}), then(resizes(3)), ask(places(1, 2), parties[1]),
		then(waits(lensForbid)), ask(places(1, 2), parties[2]), then(resizes(3)), ask(places(1, 3), parties[1]),
	)},
	{"a change of the limit is rejected once", in(
		ask(places(1, 2), parties[0]), each(releases, driver.Ref{ID: "resizer", RejectIDFor: lensForbid, SingleUseID: true}), then(resizesOnce(1)),
		ask(places(1, 2), parties[1]), then(resizes(3)), ask(places(1, 3), parties[2]),
	)},
	{"a ticket is broken", in(ask(nil, parties[0]), ask(allOf(queues, delays), parties[1]), then(breaks(idB)), each(releases, parties[0]), ask(nil, parties[2]))},
	{"a room was closed until lately, and is closed again", in(
		ask(allOf(reads, func(req *driver.Request) { req.LockDelay = 100 * time.Millisecond }), parties[0]), ask(allOf(reads, delays), parties[1]), ask(reads, parties[2]),
		then(waits(500*time.Millisecond)), each(renews, parties[1:]...), then(waits(550*time.Millisecond)), ask(nil, stranger), then(waits(60*time.Millisecond)),
		then(breaks(idB)), ask(nil, stranger),
	)},
	{"a room was closed until lately, and is kept closed", in(
		ask(allOf(reads, func(req *driver.Request) { req.LockDelay = 100 * time.Millisecond }), parties[0]), ask(reads, parties[2]),
		then(waits(500*time.Millisecond)), each(renews, parties[2]), then(waits(550*time.Millisecond)), ask(nil, stranger), then(waits(60*time.Millisecond)),
		each(releases, driver.Ref{ID: idC, KeepClosed: lensKeep}), ask(nil, stranger),
	)},
	{"a reader stays when the room is closed no longer", in(
		ask(allOf(reads, delays), parties[0]), ask(reads, parties[1]), then(waits(500*time.Millisecond)), each(renews, parties[1]),
		then(waits(550*time.Millisecond)), ask(nil, stranger), then(waits(200*time.Millisecond)), ask(nil, stranger), ask(queues, stranger),
	)},
	{"an id is rejected for a millisecond", in(ask(nil, parties[0]), each(releases, driver.Ref{ID: idA, RejectIDFor: time.Millisecond}), ask(nil, parties[0]))},
	{"a head that was called has asked again, and given up", in(
		ask(reads, parties[0]), ask(queues, parties[1]), ask(queues, driver.Ref{ID: "g", HintAddress: "B"}), ask(reads, parties[2]), then(waits(100*time.Millisecond)), each(renews, parties[1]),
		then(waits(550*time.Millisecond)), each(renews, driver.Ref{ID: "g", HintAddress: "B"}), then(waits(200*time.Millisecond)), ask(nil, parties[2]),
	)},
	{"a process is heard of when it is handed the room", in(
		ask(nil, parties[0]), ask(queues, parties[1]), ask(queues, driver.Ref{ID: "g", HintAddress: "B"}), each(renews, driver.Ref{ID: "g", HintAddress: "B"}),
		each(releases, parties[0]), then(waits(lensWindow)), ask(queues, stranger), each(renews, driver.Ref{ID: "g", HintAddress: "B"}),
	)},
	{"a process is heard of after it was handed the room", in(
		ask(nil, parties[0]), ask(queues, parties[1]), ask(queues, driver.Ref{ID: "g", HintAddress: "B"}), each(releases, parties[0]), then(waits(100*time.Millisecond)),
		each(renews, driver.Ref{ID: "g", HintAddress: "B"}), then(waits(lensWindow)), ask(queues, parties[2]), each(renews, driver.Ref{ID: "g", HintAddress: "B"}),
	)},
	{"a long lease is broken", in(ask(lasting(40*time.Minute), parties[0]), ask(allOf(queues, policy(driver.WritersFirst)), parties[1]), then(breaks(idA)), each(renews, parties[0]))},
	{"a room is kept closed until now", in(
		ask(nil, parties[0]), ask(queues, parties[1]), each(releases, driver.Ref{ID: idA, KeepClosed: lensKeep}), then(waits(lensKeep)), each(releases, parties[1]), ask(nil, parties[2]),
	)},
	{"a room that is closed is not its last owner's", in(
		ask(owner("me"), parties[0]), ask(queues, parties[1]), each(releases, driver.Ref{ID: idA, KeepClosed: lensKeep}), ask(owner("me"), parties[2]),
	)},
	{"an owner comes back as a reader", in(
		ask(owner("me"), parties[0]), ask(allOf(reads, queues), parties[1]), each(releases, driver.Ref{ID: idA, RejectIDFor: lensForbid}), each(renews, parties[1]),
		ask(allOf(reads, owner("me")), parties[2]),
	)},
	{"nobody comes after a delay", in(ask(briefly, parties[0]), then(waits(lensTTL+time.Millisecond), waits(time.Millisecond)))},
	{"a writer and a reader wait for a writer", in(
		ask(nil, parties[0]), ask(queues, parties[1]), ask(allOf(reads, queues), stranger), each(releases, parties[0]), each(renews, parties[1], stranger),
	)},
	{"the one whose lease ends first leaves, after one whose lease is long", in(
		ask(places(1, 2), parties[0]), ask(allOf(places(1, 2), lasting(2*lensTTL)), stranger), each(releases, stranger), then(waits(100*time.Millisecond)),
		ask(places(1, 2), parties[2]), then(waits(700*time.Millisecond)), ask(allOf(places(1, 2), queues), parties[1]), ask(allOf(places(2, 2), queues), stranger),
		then(waits(100*time.Millisecond)), each(releases, parties[0]), each(renews, parties[1], stranger),
	)},
	{"a reader leaves when the room is closed no longer", in(
		ask(allOf(reads, delays), parties[0]), ask(reads, parties[1]), then(waits(500*time.Millisecond)), each(renews, parties[1]),
		then(waits(550*time.Millisecond)), ask(nil, stranger), then(waits(200*time.Millisecond)), each(releases, parties[1]),
	)},
	{"a head cannot be called again", in(
		ask(writersFirst(reads), parties[0]), ask(writersFirst(queues), parties[1]), ask(writersFirst(reads), parties[2]), then(waits(100*time.Millisecond)),
		each(renews, driver.Ref{ID: idB, HintAddress: "B", TicketTTL: 400 * time.Millisecond}), then(waits(lensWindow-100*time.Millisecond)),
		ask(writersFirst(reads, queues), stranger),
	)},
	eightUnwanted(8), eightUnwanted(9),
}

func writersFirst(changes ...func(*driver.Request)) func(*driver.Request) {
	return allOf(append(changes, policy(driver.WritersFirst))...)
}

// headThatAsksAgain is a story of a head that is called, asks again, and is called again
// once its time is over.
func headThatAsksAgain(p driver.Policy) story {
	tries, waiter := allOf(reads, policy(p)), allOf(queues, policy(p))
	joins := func(id string) []step {
		return ask(allOf(reads, queues, policy(p)), driver.Ref{ID: id, HintAddress: "C"})
	}
	return story{fmt.Sprintf("a head of policy %d that has asked again is called once its time is over", p), in(
		ask(tries, parties[0]), ask(waiter, parties[1]), ask(tries, parties[2]), then(waits(100*time.Millisecond)), each(renews, parties[1]),
		then(waits(lensWindow-101*time.Millisecond)), ask(tries, parties[2]), joins("g"), each(releases, driver.Ref{ID: "g"}),
		then(waits(time.Millisecond)), joins("h"), each(releases, driver.Ref{ID: "h"}), ask(tries, parties[2]),
		then(waits(time.Millisecond)), ask(tries, parties[2]), joins("i"),
	)}
}

// headWithItsWindow returns a story of a head whose ticket lasts just for its window.
func headWithItsWindow(p driver.Policy) story {
	tries, waiter := allOf(reads, policy(p)), allOf(queues, policy(p))
	return story{fmt.Sprintf("a head of policy %d has just its window left", p), in(
		ask(tries, parties[0]), ask(waiter, parties[1]), then(waits(lensTicket-lensWindow)), ask(tries, parties[2]),
		ask(allOf(reads, queues, policy(p)), stranger), then(waits(time.Millisecond)), ask(tries, parties[2]),
	)}
}

func atLeast(ahead time.Duration) func(*driver.Request) {
	return func(req *driver.Request) { req.MinToken = lensStart + ahead.Microseconds() }
}

// eightUnwanted returns a story of tickets that no longer fit, before one that fits: as many as
// the scripts inspect first, or one more.
func eightUnwanted(many int) story {
	begin := ask(places(1, 2), parties[0])
	for i := range many {
		begin = append(begin, ask(allOf(places(2, 2), queues), driver.Ref{ID: fmt.Sprint("h", i), HintAddress: "B"})...)
	}
	return story{fmt.Sprint(many, " of the waiters fit no more"), in(begin, ask(allOf(places(1, 2), queues), parties[1]), then(resizes(1)),
		each(releases, parties[0]), each(renews, parties[1]))}
}

// halfHour is the longest time for a new lease that ends less than half an hour later than 29
// minutes after the start, a second before these have passed, in a record that began with a lease
// of a second.
const halfHour = 62 * time.Second

func briefly(req *driver.Request) { req.LockDelay = time.Millisecond }

// playStories plays all stories.
func playStories(l *lens) {
	for _, story := range stories {
		l.doing = story.name
		from := beginning()
		for _, s := range story.steps {
			if s.wait == 0 {
				from = l.goOn(from, s)
				continue
			}
			from = from.pass(s.wait.Microseconds(), s.name)
			// The listing and the inspection are compared before expired parts are removed.
			l.at = from
			l.listed(from)
			l.must(l.samePicture(from.keys, from.record, from.now))
		}
	}
}
