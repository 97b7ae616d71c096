package redisroom

import (
	"slices"
	"time"

	"github.com/leasehold-go/leasehold/driver"
)

// world is a set of possible events of one lock.
type world struct {
	name  string
	steps []step
	begin []step        // the steps before the exploration
	calm  bool          // no failures are injected
	play  func(l *lens) // instead of steps
}

// Ids of parties: one as long as the ids of the library, and two shorter.
const (
	idA = "a0123456789abcdefghijklmno"
	idB = "b"
	idC = "c"
)

// each makes a step of every party.
func each(of func(driver.Ref) step, refs ...driver.Ref) (steps []step) {
	for _, ref := range refs {
		steps = append(steps, of(ref))
	}
	return steps
}

// parties are the parties; hints arrive at all but the last.
var parties = []driver.Ref{{ID: idA, HintAddress: "A"}, {ID: idB, HintAddress: "B"}, {ID: idC}}

func request(ref driver.Ref, change func(*driver.Request)) driver.Request {
	req := driver.Request{ID: ref.ID, HintAddress: ref.HintAddress}
	if change != nil {
		change(&req)
	}
	return req
}

// ask makes a request of each party.
func ask(change func(*driver.Request), refs ...driver.Ref) (steps []step) {
	for _, ref := range refs {
		steps = append(steps, acquires(request(ref, change)))
	}
	return steps
}

func queues(req *driver.Request) { req.TicketTTL = lensTicket }

func reads(req *driver.Request) { req.Mode = driver.Shared }

func allOf(changes ...func(*driver.Request)) func(*driver.Request) {
	return func(req *driver.Request) {
		for _, change := range changes {
			if change != nil {
				change(req)
			}
		}
	}
}

func policy(p driver.Policy) func(*driver.Request) {
	return func(req *driver.Request) { req.Policy = p }
}

func places(weight, limit int) func(*driver.Request) {
	return func(req *driver.Request) { req.Mode, req.Weight, req.Limit = driver.Shared, weight, limit }
}

func owner(name string) func(*driver.Request) {
	return func(req *driver.Request) { req.Reenter, req.Owner = true, name }
}

func visiting(name string) func(*driver.Request) {
	return func(req *driver.Request) { req.Visit = name }
}

// readersAndWriter returns a world of two readers and a writer, with a policy.
func readersAndWriter(name string, p driver.Policy) world {
	writer := parties[1]
	return world{name: name, steps: slices.Concat(
		ask(allOf(reads, queues, policy(p)), parties[0], parties[2]),
		ask(allOf(queues, policy(p)), writer),
		ask(allOf(reads, policy(p)), parties[0]),
		ask(policy(p), writer),
		each(releases, parties...), each(renews, parties...),
	)}
}

var worlds = append([]world{
	{name: "HR_A1 mutex", steps: slices.Concat(
		ask(nil, parties[0]), ask(queues, parties...),
		each(releases, parties...), each(renews, parties...),
		each(releases, driver.Ref{ID: idA, Uncontended: true}), each(renews, driver.Ref{ID: idA, Uncontended: true}),
		[]step{breaks(idA), breaks(idB)},
	)},
	readersAndWriter("readers and a writer", driver.FIFO),
	readersAndWriter("writers first", driver.WritersFirst),
	readersAndWriter("readers first", driver.ReadersFirst),
	readersAndWriter("barging", driver.Barging),
	{name: "places", steps: slices.Concat(
		ask(allOf(places(1, 2), queues), parties[:2]...), ask(allOf(places(2, 2), queues), parties[1]), ask(places(1, 2), parties[2]),
		ask(places(1, 1), parties[2]), ask(queues, parties[2]),
		[]step{resizes(1), resizes(3)},
		each(releases, parties...), each(renews, parties[:2]...),
	)},
	{name: "owners", steps: slices.Concat(
		ask(owner("me"), parties[0], parties[1]), ask(allOf(owner("me"), reads, queues), parties[1]), ask(allOf(owner("you"), queues), parties[2]),
		[]step{downgrades(parties[0], ""), downgrades(parties[0], "me")},
		each(releases, parties...), each(renews, parties...),
		[]step{renews(driver.Ref{ID: idA, Token: lensStart + 5_000_000}), renews(driver.Ref{ID: idA, Token: lensStart - 5, Level: true})},
	)},
	{name: "ends", steps: slices.Concat(
		ask(func(req *driver.Request) { req.LockDelay = lensDelay }, parties[0]),
		ask(allOf(queues, func(req *driver.Request) { req.SingleUseID = true }), parties[:2]...),
		ask(func(req *driver.Request) { req.MinToken = lensStart + (2 * time.Hour).Microseconds() }, parties[1]),
		ask(reads, parties[0]),
		ask(func(req *driver.Request) { req.MinToken = lensStart + (25 * time.Hour).Microseconds() }, parties[1]),
		each(releases,
			driver.Ref{ID: idA}, driver.Ref{ID: idB},
			driver.Ref{ID: idA, KeepClosed: lensKeep},
			driver.Ref{ID: idA, RejectIDFor: lensForbid},
			driver.Ref{ID: idB, RejectIDFor: lensForbid, SingleUseID: true},
			driver.Ref{ID: idA, RejectIDFor: lensForbid, SingleUseID: true, Uncontended: true},
		),
		[]step{breaks(idA)},
		each(renews, parties[:2]...),
	)},
	{name: "visits", steps: slices.Concat(
		ask(allOf(queues, visiting("v/1")), parties[:2]...),
		ask(allOf(queues, visiting("v/2")), parties[0]),
		ask(allOf(queues, visiting("w")), parties[1]),
		each(releases, driver.Ref{ID: idA, Visit: "v"}, driver.Ref{ID: idA, Visit: "v/1"}, driver.Ref{ID: idB, Visit: "w"}, driver.Ref{ID: idB}),
		each(renews, parties[:2]...), each(renews, driver.Ref{ID: idA, Visit: "v/2"}, driver.Ref{ID: idB, Visit: "w"}),
	)},
	{name: "several rooms", calm: true, steps: slices.Concat(
		ask(nil, parties[0]), ask(queues, parties[:2]...), ask(visiting("v/1"), parties[0]), each(releases, parties[:2]...),
		each(renewsAmongOthers, parties[0], parties[1], driver.Ref{ID: idA, Uncontended: true}, driver.Ref{ID: idA, Visit: "v/2"}),
	)},
	handOverThatLapses("a hand-over that lapses", driver.Ref{ID: idA}),
	handOverThatLapses("a hand-over by the general way that lapses", driver.Ref{ID: idA, RejectIDFor: lensForbid}),
	callThatIsMissed("a call that is missed", driver.FIFO),
	callThatIsMissed("a call by the general way that is missed", driver.WritersFirst),
}, plays...)

// process are parties of one process, and stranger one of another.
var (
	process  = []driver.Ref{{ID: idA, HintAddress: "A"}, {ID: idB, HintAddress: "A"}, {ID: "d", HintAddress: "A"}, {ID: "e", HintAddress: "A"}}
	stranger = driver.Ref{ID: "f", HintAddress: "B"}
)

// handOverThatLapses is a world in which a process was handed the room by a release.
func handOverThatLapses(name string, release driver.Ref) world {
	return world{
		name:  name,
		begin: slices.Concat(ask(queues, process[:3]...), each(releases, release)),
		steps: slices.Concat(ask(queues, process[3], stranger), each(releases, process[1], stranger), each(renews, process[1:3]...)),
	}
}

// callThatIsMissed returns a world in which a process was called to the room. Only the FIFO
// policy has a shorter path than the general one.
func callThatIsMissed(name string, p driver.Policy) world {
	waits, tries := allOf(queues, policy(p)), allOf(reads, policy(p))
	return world{
		name:  name,
		begin: slices.Concat(ask(tries, parties[2]), ask(waits, process[:2]...), ask(tries, stranger)),
		steps: slices.Concat(ask(waits, process[2]), ask(tries, stranger), each(releases, process[0]), each(renews, process[:2]...)),
	}
}

func resizes(limit int) step {
	return acquires(driver.Request{ID: "resizer", Mode: driver.Shared, Limit: limit, Resize: true})
}

func resizesOnce(limit int) step {
	return acquires(driver.Request{ID: "resizer", Mode: driver.Shared, Limit: limit, Resize: true, SingleUseID: true})
}

func downgrades(ref driver.Ref, name string) step {
	req := request(ref, reads)
	req.Downgrade, req.Reenter, req.Owner = true, name != "", name
	return acquires(req)
}
