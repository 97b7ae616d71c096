package leasehold_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/memdriver"
)

func Example() {
	client, err := leasehold.New(memdriver.New())
	if err != nil {
		panic(err)
	}
	defer client.Close()

	lease, err := client.Mutex("orders/42").Lock(context.Background())
	if err != nil {
		panic(err)
	}
	// Work with lease.Context(), which ends with the lease.
	fmt.Println(lease.Key(), lease.State())

	if err := lease.Release(); err != nil {
		panic(err) // the work was not protected to its end
	}
	// Output: orders/42 held
}

func ExampleNew() {
	// Options given to New are the defaults of all locks of the client.
	client, err := leasehold.New(memdriver.New(),
		leasehold.WithTTL(10*time.Second),
		leasehold.WithLogger(slog.Default()),
	)
	fmt.Println(client != nil, err)
	client.Close()

	_, err = leasehold.New(memdriver.New(), leasehold.WithTTL(time.Nanosecond))
	fmt.Println(err)
	// Output:
	// true <nil>
	// leasehold: TTL 1ns is not between 10ms and 24h0m0s: invalid
}

func ExampleMutex_Lock() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	// The deadline of the context bounds the wait, and the lease.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	lease, err := client.Mutex("orders/42").Lock(ctx)
	if err != nil {
		fmt.Println("not served:", err)
		return
	}
	fmt.Println(lease.Context().Err())
	fmt.Println(lease.Release())
	fmt.Println(context.Cause(lease.Context()))
	// Output:
	// <nil>
	// <nil>
	// lease released
}

func ExampleMutex_TryLock() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	nightly := client.Mutex("nightly-backup")

	lease, err := nightly.TryLock(context.Background())
	fmt.Println(lease.State(), err)

	if _, err := nightly.TryLock(context.Background()); errors.Is(err, leasehold.ErrHeld) {
		fmt.Println("somebody is already at it")
	}
	// Output:
	// held <nil>
	// somebody is already at it
}

func ExampleDo() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	err := leasehold.Do(context.Background(), client.Mutex("orders/42"), func(ctx context.Context) error {
		fmt.Println("charging, lease live:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err, errors.Is(err, leasehold.ErrLost))
	// Output:
	// charging, lease live: true
	// <nil> false
}

func ExampleClient_Acquire() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	ctx, release, err := client.Acquire(context.Background(), "orders/42", 10*time.Second)
	if err != nil {
		panic(err)
	}
	fmt.Println(ctx.Err())
	fmt.Println(release())
	// Output:
	// <nil>
	// <nil>
}

// A resource lets through what is not older than what it has seen. The holder's own
// second write has an equal token:
//
//	UPDATE orders SET state = 'paid', fence = $token WHERE id = 42 AND fence <= $token
//
// Where two could have equal ones, as leases of one owner that re-entered, and are
// to be told apart, the owner is kept too; package fence does that.
func ExampleLease_Token() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	order := client.Mutex("orders/42")
	var seen int64 // by the resource
	write := func(token int64) bool {
		passes := seen <= token
		seen = max(seen, token)
		return passes
	}

	first, _ := order.Lock(context.Background())
	_ = first.Release()
	second, _ := order.Lock(context.Background())
	fmt.Println("the holder:", write(second.Token()))
	fmt.Println("once more:", write(second.Token()))
	fmt.Println("the one before, late:", write(first.Token()))
	// Output:
	// the holder: true
	// once more: true
	// the one before, late: false
}

func ExampleLease_Places() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	gpu := client.Semaphore("gpu", 4)

	first, _ := gpu.Lock(context.Background())
	both, _ := gpu.LockN(context.Background(), 2)
	fmt.Println(first.Places(), both.Places(), first.Release())
	next, _ := gpu.Lock(context.Background())
	fmt.Println(next.Places())
	// Output:
	// [0] [1 2] <nil>
	// [0]
}

func ExampleLease_Wanted() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	lease, _ := client.Mutex("batch").Lock(context.Background())

	next := make(chan error)
	go func() {
		lease, err := client.Mutex("batch").Lock(context.Background())
		next <- errors.Join(err, lease.Release())
	}()
	select { // between two parts of a long job
	case <-lease.Wanted():
		fmt.Println(lease.Release(), <-next)
	case <-lease.Context().Done():
	}
	// Output: <nil> <nil>
}

func ExampleLease_Context() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	lease, _ := client.Mutex("report", leasehold.WithMaxHold(20*time.Millisecond)).Lock(context.Background())
	<-lease.Context().Done() // the lock stays closed until Release
	fmt.Println(context.Cause(lease.Context()))
	fmt.Println(lease.Release())
	// Output:
	// maximum hold time reached
	// <nil>
}

func ExampleLease_Extend() {
	client, _ := leasehold.New(memdriver.New(), leasehold.WithTTL(time.Second), leasehold.WithoutRenewal())
	defer client.Close()

	lease, _ := client.Mutex("migration").Lock(context.Background())
	err := lease.Extend(context.Background(), time.Minute)
	fmt.Println(lease.Remaining() > 50*time.Second, err)

	_ = lease.Release()
	fmt.Println(lease.Extend(context.Background(), time.Minute))
	// Output:
	// true <nil>
	// leasehold: lock "migration": lease not held: lease released
}

func ExampleLease_State() {
	client, _ := leasehold.New(memdriver.New(), leasehold.WithName("worker-7"))
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	lease, _ := client.Mutex("orders/42").Lock(ctx)
	fmt.Println(lease.Key(), lease.Owner(), lease.ID() != "", time.Until(lease.Deadline()) > 20*time.Second)
	fmt.Println(lease.State(), lease.State().Live())

	cancel() // ends the context of the lease; the lock stays closed until Release
	fmt.Println(lease.State(), lease.State().Live())
	fmt.Println(lease.Release())
	// Output:
	// orders/42 worker-7 true true
	// held true
	// context false
	// <nil>
}

// The lease stays in the store, where who knows its id takes it over: see Mutex.Adopt.
func ExampleLease_Detach() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	lease, _ := client.Mutex("nightly").Lock(context.Background())
	fmt.Println(lease.Detach(context.Background()), lease.Release())

	_, err := client.Mutex("nightly").TryLock(context.Background())
	fmt.Println(errors.Is(err, leasehold.ErrHeld))
	// Output:
	// <nil> <nil>
	// true
}

func ExampleTryDo() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	nightly := client.Mutex("nightly")
	lease, _ := nightly.Lock(context.Background())

	ran, err := leasehold.TryDo(context.Background(), nightly, func(context.Context) error { return nil })
	fmt.Println(ran, err) // somebody is at it
	_ = lease.Release()
	ran, err = leasehold.TryDo(context.Background(), nightly, func(context.Context) error { return nil })
	fmt.Println(ran, err)
	// Output:
	// false <nil>
	// true <nil>
}

func ExampleFromContext() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	err := leasehold.Do(context.Background(), client.Mutex("orders/42"), func(ctx context.Context) error {
		lease, ok := leasehold.FromContext(ctx) // where only the context is known
		fmt.Println(lease.Key(), lease.Token() > 0, ok)
		return nil
	})
	fmt.Println(err)
	// Output:
	// orders/42 true true
	// <nil>
}

// Options of a client are the defaults of its locks. Each states its own default and
// bounds.
func ExampleOption() {
	client, err := leasehold.New(memdriver.New(),
		leasehold.WithTTL(time.Minute),            // a holder that died blocks others no longer
		leasehold.WithRenewFraction(0.25),         // renewed every 15 s
		leasehold.WithMaxRenewAttempts(5),         // lost after 5 failed tries, not only at the deadline
		leasehold.WithDriftFactor(0.02),           // clocks differ in rate by at most 2 %
		leasehold.WithReleaseTimeout(time.Second), // Release waits no longer for the store
		leasehold.WithMaxOutage(10*time.Second),   // Lock waits no longer for a store that is away
		leasehold.WithLockDelay(5*time.Second),    // closed for so long after a loss
		leasehold.WithMinToken(1_000_000),         // the resource has seen such a token
		leasehold.WithRetry(leasehold.Linear(100*time.Millisecond, time.Second)),
	)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	lease, err := client.Mutex("orders/42", leasehold.WithRetry(leasehold.Constant(time.Second))).Lock(context.Background())
	fmt.Println(lease.Token() > 1_000_000, err)

	_, err = leasehold.New(memdriver.New(), leasehold.WithTTL(time.Nanosecond))
	fmt.Println(err)
	// Output:
	// true <nil>
	// leasehold: TTL 1ns is not between 10ms and 24h0m0s: invalid
}

func ExampleHeldError() {
	store := memdriver.New()
	client, _ := leasehold.New(store)
	defer client.Close()
	holder := client.Mutex("orders/42", leasehold.WithName("worker-7"))
	_, _ = holder.Lock(context.Background())

	_, err := client.Mutex("orders/42", leasehold.WithMaxWait(200*time.Millisecond)).Lock(context.Background())
	if held := new(leasehold.HeldError); errors.As(err, &held) {
		fmt.Println(held.Key, held.Owner, held.Position, held.Waited > 0)
	}
	fmt.Println(errors.Is(err, leasehold.ErrHeld), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// orders/42 worker-7 1 true
	// true true
}

// Workers with redsync take the same plain key. Nobody starves while both are in use.
func ExampleAlongside() {
	client, _ := leasehold.New(memdriver.New(), leasehold.WithRetry(leasehold.Alongside()))
	defer client.Close()

	lease, err := client.Mutex("orders/42").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Release())
	// Output: <nil>
}

func ExampleWithRetry() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	_, _ = client.Mutex("orders/42", leasehold.WithName("worker-7")).Lock(context.Background())

	// Asks again instead of standing in the queue. One Backoff serves any
	// number of locks.
	patience := leasehold.Exponential(time.Millisecond, 10*time.Millisecond)
	patience.Attempts = 3
	_, err := client.Mutex("orders/42", leasehold.WithRetry(patience)).Lock(context.Background())
	fmt.Println(errors.Is(err, leasehold.ErrHeld))
	fmt.Println(patience.Delay(1), patience.Delay(2), patience.Delay(9))
	// Output:
	// true
	// 1ms 2ms 10ms
}

func ExampleWithReentrantOwner() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	// The owner may take this lock again, also from another process.
	mine := client.Mutex("orders/42", leasehold.WithReentrantOwner("worker-7"))
	outer, _ := mine.Lock(context.Background())
	inner, err := mine.Lock(context.Background())
	fmt.Println(inner.Token() == outer.Token(), err)

	_ = inner.Release()
	_, err = client.Mutex("orders/42", leasehold.WithReentrantOwner("worker-8")).TryLock(context.Background())
	fmt.Println(errors.Is(err, leasehold.ErrHeld))
	// Output:
	// true <nil>
	// true
}

func ExampleWithPolicy() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	writersFirst := leasehold.WithPolicy(leasehold.WritersFirst)
	catalog := client.RWMutex("catalog", writersFirst)
	lease, err := catalog.RLock(context.Background())
	fmt.Println(lease.State(), err)

	_, err = client.Mutex("orders/42", writersFirst).Lock(context.Background()) // has no readers
	fmt.Println(errors.Is(err, leasehold.ErrInvalid))
	// Output:
	// held <nil>
	// true
}

func ExampleWithStrictOrder() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	// Of a store that keeps no queue the error would match ErrUnsupported.
	_, err := client.Mutex("orders/42", leasehold.WithStrictOrder()).Lock(context.Background())
	fmt.Println(err)
	// Output: <nil>
}

func ExampleWithLocalHandover() {
	client, _ := leasehold.New(memdriver.New(), leasehold.WithLocalHandover(100))
	defer client.Close()
	stock := client.Mutex("stock")

	// The goroutines of this process stand in one line: the lease goes from one to the
	// next without a request, and each has a token of its own.
	counted := 0
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_ = leasehold.Do(context.Background(), stock, func(context.Context) error {
				counted++
				return nil
			})
		})
	}
	wg.Wait()
	fmt.Println(counted)
	// Output: 50
}

func ExampleMutex_reentry() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	// Under the context of a lease its lock is free to its holder.
	update := func(ctx context.Context) error {
		return leasehold.Do(ctx, client.Mutex("orders/42"), func(context.Context) error { return nil })
	}
	err := leasehold.Do(context.Background(), client.Mutex("orders/42"), update)
	fmt.Println(err)
	// Output: <nil>
}

func ExampleWithMinHold() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	// A cron job that is shorter than the clocks of its hosts differ.
	job := client.Mutex("nightly", leasehold.WithMinHold(time.Minute))
	lease, _ := job.TryLock(context.Background())
	fmt.Println(lease.Release())
	_, err := job.TryLock(context.Background())
	fmt.Println(errors.Is(err, leasehold.ErrHeld))
	// Output:
	// <nil>
	// true
}

func ExampleClient_Stats() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	lease, _ := client.Mutex("a").Lock(context.Background())
	_, _ = client.Mutex("a").TryLock(context.Background())
	s := client.Stats()
	fmt.Println("held", s.Held, "granted", s.Granted, "refused", s.Refused)
	_ = lease.Release()
	fmt.Println("held", client.Stats().Held, "released", client.Stats().Released)
	// Output:
	// held 1 granted 1 refused 1
	// held 0 released 1
}

func ExampleClient_Inspect() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	lease, _ := client.Mutex("orders/42", leasehold.WithName("worker-7"), leasehold.WithLabels(map[string]string{"job": "charge"})).Lock(context.Background())

	snap, err := client.Inspect(context.Background(), "orders/42")
	if err != nil {
		panic(err)
	}
	for _, h := range snap.Holders {
		fmt.Println(h.Owner, h.Labels["job"], h.ID == lease.ID(), h.Token == snap.Token)
	}
	// Output: worker-7 charge true true
}

// A program that asks at its start ends with the reason, instead of at its first lock.
func ExampleClient_Ping() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	fmt.Println(client.Ping(ctx))
	// Output: <nil>
}

func ExampleClient_Keys() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	for _, key := range []string{"orders/1", "users/1"} {
		_, _ = client.Mutex(key).Lock(context.Background())
	}
	for key, err := range client.Keys(context.Background(), "orders/") {
		fmt.Println(key, err)
	}
	// Output: orders/1 <nil>
}

func ExampleClient_Break() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	lease, _ := client.Mutex("orders/42").Lock(context.Background())

	err := client.Break(context.Background(), "orders/42", lease.ID(), "host is gone")
	fmt.Println(err)
	fmt.Println(lease.Release())
	// Output:
	// <nil>
	// leasehold: lock "orders/42": lease lost: lease broken by force: host is gone
}

func ExampleRWMutex() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	catalog := client.RWMutex("catalog")

	one, _ := catalog.RLock(context.Background())
	two, _ := catalog.TryRLock(context.Background())
	_, err := catalog.TryLock(context.Background())
	fmt.Println(one.State(), two.State(), errors.Is(err, leasehold.ErrHeld))
	// Output: held held true
}

func ExampleRLocker() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	reader := client.RWMutex("catalog").RLocker()

	lease, _ := reader.Lock(context.Background())
	another, err := reader.TryLock(context.Background())
	fmt.Println(lease.State(), another.State(), err)

	ran, err := leasehold.TryDo(context.Background(), reader, func(context.Context) error { return nil })
	fmt.Println(ran, err)
	// Output:
	// held held <nil>
	// true <nil>
}

// A writer goes on as a reader, and no other writer slips in.
func ExampleLease_Downgrade() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	catalog := client.RWMutex("catalog")
	lease, _ := catalog.Lock(context.Background())
	_, err := catalog.TryRLock(context.Background())
	fmt.Println(errors.Is(err, leasehold.ErrHeld))

	fmt.Println(lease.Downgrade(context.Background()))
	reader, err := catalog.TryRLock(context.Background())
	fmt.Println(reader.State(), err)
	// Output:
	// true
	// <nil>
	// held <nil>
}

// The sides of a lock and its places are taken over like a mutex: see there.
func ExampleRWMutex_RAdopt() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	catalog := client.RWMutex("catalog")

	reader, _ := catalog.RLock(context.Background())
	_ = reader.Detach(context.Background())
	reader, err := catalog.RAdopt(context.Background(), reader.ID())
	fmt.Println(err, reader.Release())

	writer, _ := catalog.Lock(context.Background())
	_ = writer.Detach(context.Background())
	writer, err = catalog.Adopt(context.Background(), writer.ID())
	fmt.Println(err, writer.Release())

	locker := catalog.RLocker() // the read side as a lock of its own
	reader, err = locker.Lock(context.Background())
	fmt.Println(err, reader.Release())
	// Output:
	// <nil> <nil>
	// <nil> <nil>
	// <nil> <nil>
}

func ExampleSemaphore_Resize() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	lease, _ := client.Semaphore("gpu", 4).Lock(context.Background())

	fmt.Println(client.Semaphore("gpu", 4).Resize(context.Background(), 8))
	_, err := client.Semaphore("gpu", 4).TryLock(context.Background()) // states the old limit
	fmt.Println(errors.Is(err, leasehold.ErrMismatch))
	another, err := client.Semaphore("gpu", 8).TryLock(context.Background())
	fmt.Println(another.State(), err, lease.Release())
	// Output:
	// <nil>
	// true
	// held <nil> <nil>
}

func ExampleSemaphore_Adopt() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	gpu := client.Semaphore("gpu", 4)
	lease, _ := gpu.LockN(context.Background(), 2)
	_ = lease.Detach(context.Background())

	lease, err := gpu.Adopt(context.Background(), lease.ID()) // with its two places
	fmt.Println(err, lease.Places(), lease.Release())
	// Output: <nil> [0 1] <nil>
}

func ExamplePlaces() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	half := client.Semaphore("gpu", 4).Places(2)

	first, _ := half.Lock(context.Background())
	second, err := half.TryLock(context.Background())
	fmt.Println(first.State(), second.State(), err)
	ran, err := leasehold.TryDo(context.Background(), half, func(context.Context) error { return nil })
	fmt.Println(ran, err)
	// Output:
	// held held <nil>
	// false <nil>
}

func ExampleSemaphore() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	gpu := client.Semaphore("gpu", 4)

	three, _ := gpu.LockN(context.Background(), 3)
	_, err := gpu.TryLockN(context.Background(), 2)
	fmt.Println(errors.Is(err, leasehold.ErrHeld))
	_ = three.Release()
	two, err := gpu.TryLockN(context.Background(), 2)
	fmt.Println(two.State(), err)

	_ = two.Release()
	err = leasehold.Do(context.Background(), gpu.Places(3), func(context.Context) error { return nil })
	fmt.Println(err)
	// Output:
	// true
	// held <nil>
	// <nil>
}

func ExampleAll() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()

	lease, err := leasehold.All(client.Mutex("b"), client.Mutex("a")).Lock(context.Background())
	if err != nil {
		panic(err)
	}
	for _, part := range lease.Parts() {
		fmt.Println(part.Key(), part.State())
	}
	fmt.Println(lease.Release())
	// Output:
	// a held
	// b held
	// <nil>
}

// A transfer needs both accounts. Each has a token of its own.
func ExampleMultiLease() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	both := leasehold.All(client.Mutex("account/2"), client.Mutex("account/1"))
	lease, err := both.Lock(context.Background())
	if err != nil {
		panic(err)
	}
	tokens := lease.Tokens()
	for _, part := range lease.Parts() { // in the order of their keys
		fmt.Println(part.Key(), part.Token() == tokens[part.Key()])
	}
	fmt.Println(lease.Extend(context.Background(), time.Minute), lease.Remaining() > 50*time.Second, time.Now().Before(lease.Deadline()))
	fmt.Println(lease.State(), lease.Context().Err())
	fmt.Println(lease.Release(), lease.State())
	// Output:
	// account/1 true
	// account/2 true
	// <nil> true true
	// held <nil>
	// <nil> released
}

func ExampleMulti_TryLock() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	_, _ = client.Mutex("b").Lock(context.Background())

	// Any mixture: what is free of them is not kept if one is held.
	some := leasehold.All(client.Mutex("a"), client.RWMutex("b").RLocker(), client.Semaphore("c", 4).Places(2))
	_, err := some.TryLock(context.Background())
	fmt.Println(errors.Is(err, leasehold.ErrHeld))

	more := leasehold.All(client.Mutex("a"), leasehold.All(client.Mutex("c"), client.Mutex("d")))
	lease, err := more.Lock(context.Background())
	fmt.Println(len(lease.Parts()), err)
	// Output:
	// true
	// 3 <nil>
}

func ExampleMultiFromContext() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	err := leasehold.Do(context.Background(), leasehold.All(client.Mutex("a"), client.Mutex("b")), func(ctx context.Context) error {
		lease, ok := leasehold.MultiFromContext(ctx)
		fmt.Println(ok, len(lease.Tokens()))
		return nil
	})
	fmt.Println(err)
	// Output:
	// true 2
	// <nil>
}

func ExampleElection() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	scheduler := client.Election("scheduler", "10.0.0.7:8080")

	err := scheduler.Lead(context.Background(), func(_ context.Context, lease *leasehold.Lease) error {
		leader, err := scheduler.Leader(context.Background())
		fmt.Println(leader.Value, leader.Token == lease.Token(), err)
		return nil
	})
	fmt.Println(err)
	// Output:
	// 10.0.0.7:8080 true <nil>
	// <nil>
}

func ExampleElection_Resign() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	scheduler := client.Election("scheduler", "10.0.0.7:8080")

	err := scheduler.Lead(context.Background(), func(ctx context.Context, _ *leasehold.Lease) error {
		fmt.Println("leads:", scheduler.IsLeader())
		scheduler.Resign() // ends ctx
		<-ctx.Done()
		fmt.Println("leads:", scheduler.IsLeader())
		return context.Cause(ctx)
	})
	fmt.Println(errors.Is(err, leasehold.ErrResigned))
	// Output:
	// leads: true
	// leads: false
	// true
}

func ExampleElection_Observe() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	scheduler := client.Election("scheduler", "10.0.0.7:8080")

	_ = scheduler.Lead(context.Background(), func(ctx context.Context, _ *leasehold.Lease) error {
		for leader, err := range scheduler.Observe(ctx) { // anybody may
			fmt.Println(leader.Value, err)
			break
		}
		return nil
	})
	// Output: 10.0.0.7:8080 <nil>
}

func ExampleObserveWait() {
	client, _ := leasehold.New(memdriver.New())
	defer client.Close()
	_, _ = client.Mutex("orders/42", leasehold.WithName("worker-7")).Lock(context.Background())

	place := 0
	ctx := leasehold.ObserveWait(context.Background(), func(e leasehold.WaitEvent) {
		if e.Position != place {
			place = e.Position
			fmt.Println(e.Key, "place", place, "behind", e.Holder.Owner)
		}
	})
	_, _ = client.Mutex("orders/42", leasehold.WithMaxWait(200*time.Millisecond)).Lock(ctx)
	// Output: orders/42 place 1 behind worker-7
}

func ExampleWithObserver() {
	// Packages leaseholdprom and leaseholdotel have observers ready made.
	slow := leasehold.Observer{
		Acquired: func(ctx context.Context, e leasehold.AcquiredInfo) context.Context {
			fmt.Println(e.Class, e.Kind(), e.Outcome(), e.Waited > time.Minute)
			return ctx
		},
		Renewed: func(_ context.Context, e leasehold.RenewedInfo) {
			fmt.Println(e.Class, e.Outcome())
		},
		Ended: func(_ context.Context, e leasehold.EndedInfo) {
			fmt.Println(e.Class, e.Reason(), e.Lost())
		},
		Released: func(_ context.Context, e leasehold.ReleasedInfo) {
			fmt.Println(e.Class, "release", e.Outcome())
		},
	}
	class := func(key string) string {
		class, _, _ := strings.Cut(key, "/")
		return class
	}
	client, _ := leasehold.New(memdriver.New(), leasehold.WithObserver(slow), leasehold.WithClass(class))
	defer client.Close()

	lease, _ := client.Mutex("orders/42").Lock(context.Background())
	_, _ = client.Mutex("orders/42").TryLock(context.Background())
	_ = lease.Release()
	// Output:
	// orders mutex granted false
	// orders mutex held false
	// orders released false
	// orders release confirmed
}

// The first step of a job leaves its lease in the store, the last takes it over:
// they are processes of their own, and the id goes from one to the other.
func ExampleMutex_Adopt() {
	store := memdriver.New()
	begin, _ := leasehold.New(store.Join(), leasehold.WithTTL(10*time.Minute))
	lease, _ := begin.Mutex("nightly").Lock(context.Background())
	id := lease.ID()
	err := lease.Detach(context.Background())
	fmt.Println("left:", err, begin.Close())

	finish, _ := leasehold.New(store.Join())
	defer finish.Close()
	lease, err = finish.Mutex("nightly").Adopt(context.Background(), id)
	fmt.Println("taken over:", lease.State(), lease.ID() == id, err)
	fmt.Println("released:", lease.Release())

	_, err = finish.Mutex("nightly").Adopt(context.Background(), id)
	fmt.Println("again:", errors.Is(err, leasehold.ErrNotHeld))
	// Output:
	// left: <nil> <nil>
	// taken over: held true <nil>
	// released: <nil>
	// again: true
}
