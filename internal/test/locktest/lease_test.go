package locktest_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

var leaseRows = []row{
	{"L1_ReleaseOfAnExpiredLeaseLeavesTheNewHolderAlone", func(l *lab) {
		a, _ := l.client(leasehold.WithTTL(life), leasehold.WithoutRenewal())
		b, _ := l.client()
		old := l.lock(a)
		next := l.lock(b)
		l.wantErr(old.Release(), leasehold.ErrLost)
		l.wantErr(old.Extend(context.Background(), life), leasehold.ErrNotHeld)
		if next.Token() <= old.Token() {
			l.Errorf("token %d after %d", next.Token(), old.Token())
		}
		l.refused(mutex, a, leasehold.ErrHeld)
		l.release(next)
	}},
	{"L2_LostAcquireReplyGivesOneHold", func(l *lab) {
		c, m := l.client()
		m.acquires = []fault{lost, lost}
		lease := l.lock(c)
		if snap := l.picture(c); len(snap.Holders) != 1 || snap.Holders[0].ID != lease.ID() || snap.Token != lease.Token() {
			l.Errorf("token %d; store: %+v", lease.Token(), snap)
		}
		l.release(lease)
		l.wantFree(0)
	}},
	{"L3_LostReleaseReplyIsRepeatedAndTheNextHolderSurvives", func(l *lab) {
		a, m := l.client()
		b, _ := l.client()
		first := l.lock(a)
		got := l.queue(context.Background(), mutex, b, "b")
		m.releases = []fault{lost, lost}
		l.release(first)
		next := l.entered(got, 2*time.Second)
		time.Sleep(life)
		l.release(next)
	}},
	{"L4_CancelledAcquireIsUndone", func(l *lab) {
		c, m := l.client()
		m.acquires = []fault{silent}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := c.Mutex(l.key).Lock(ctx)
		l.wantErr(err, leasehold.ErrUnknown, context.DeadlineExceeded)
		// The end of ctx ends the wait: a try alone would last five seconds.
		if got := time.Since(start); got > 4*time.Second {
			l.Errorf("returned %v after the start", got)
		}
		l.wantFree(clean)
	}},
	{"L8_DeletedKeyIsNoticedAndNeverRetaken", func(l *lab) {
		a, m := l.client(leasehold.WithTTL(life))
		b, _ := l.client()
		lease := l.lock(a)
		_, err := m.store.Release(context.Background(), driver.Ref{Key: l.key, ID: lease.ID()})
		l.must(err)
		next := l.lock(b)
		l.ended(lease, life)
		l.wantErr(context.Cause(lease.Context()), leasehold.ErrLost)
		time.Sleep(life)
		l.release(next)
		l.wantFree(0)
	}},
	{"HolderLearnsOfAWaiter", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client(leasehold.WithLocalHandover(3))
		quiet := func(wanted <-chan struct{}, d time.Duration) {
			l.Helper()
			select {
			case <-wanted:
				l.Error("the channel has closed without a waiter")
			case <-time.After(d):
			}
		}
		for _, others := range []*leasehold.Client{a, b} {
			lease := l.lock(b)
			time.Sleep(2 * time.Second)
			wanted := lease.Wanted()
			quiet(wanted, 5*time.Second)
			got := make(chan outcome, 1)
			go func() { // without an observer, so that the call may wait in the line of its client
				lease, err := others.Mutex(l.key).Lock(context.Background())
				got <- outcome{lease: lease, err: err}
			}()
			select {
			case <-wanted:
			case <-time.After(2 * time.Second):
				l.Error("the channel has not closed, and there is a waiter")
			}
			if again := lease.Wanted(); again != wanted || lease.State() != leasehold.Held {
				l.Error("a second call returns another channel, or the lease has ended")
			}
			l.release(lease)
			next := l.entered(got, slack)
			quiet(next.Wanted(), 2*time.Second)
			l.release(next)
		}
	}},
	{"L9_ReleaseRacesWithRenewal", releaseRaces},
	{"L12_LeaseAfterTheLastOneIsRenewed", func(l *lab) {
		c, _ := l.client(leasehold.WithTTL(kept))
		l.release(l.lock(c))
		lease := l.lock(c)
		time.Sleep(2 * kept)
		l.release(lease)
	}},
	{"L13_ParentsEndKeepsTheLock", func(l *lab) {
		c, _ := l.client()
		other, _ := l.client()
		reason := errors.New("reason")
		ctx, cancel := context.WithCancelCause(context.Background())
		lease, err := c.Mutex(l.key).Lock(ctx)
		l.must(err)
		cancel(reason)
		l.ended(lease, time.Second)
		l.wantErr(context.Cause(lease.Context()), reason)
		l.refused(mutex, other, leasehold.ErrHeld)
		l.release(lease)
		l.wantFree(clean)
	}},
	{"L16_CloseReleasesAndAnswersWaiters", func(l *lab) {
		a, _ := l.client()
		b, _ := l.client()
		lease := l.lock(a)
		got := l.queue(context.Background(), mutex, b, "b")
		start := time.Now()
		l.must(b.Close())
		l.wantErr(l.receive(got, time.Second).err, leasehold.ErrClosed)
		l.must(a.Close())
		if got := time.Since(start); got > 2*time.Second {
			l.Errorf("took %v", got)
		}
		l.wantErr(context.Cause(lease.Context()), leasehold.ErrClosed)
		l.wantFree(0)
	}},
	{"R2_HoldersOfAStoreThatForgetsLoseInTime", forgotten},
}

// releaseRaces is L9.
func releaseRaces(l *lab) {
	c, _ := l.client()
	for range 200 {
		lease := l.lock(c)
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := lease.Extend(context.Background(), time.Minute); err != nil && !errors.Is(err, leasehold.ErrReleased) {
				l.Errorf("extend: %v", err)
			}
		})
		l.release(lease)
		wg.Wait()
	}
	l.wantFree(0)
	if s := c.Stats(); s.Lost > 0 || s.Held > 0 {
		l.Errorf("%+v", s)
	}
}

// forgotten is R2: the store forgets everything.
func forgotten(l *lab) {
	a, _ := l.client(leasehold.WithTTL(life))
	b, _ := l.client()
	var tokens []int64
	for range 3 {
		lease := l.lock(a)
		l.store.Flush()
		l.ended(lease, life)
		l.wantErr(context.Cause(lease.Context()), leasehold.ErrLost)
		next := l.lock(b)
		tokens = append(tokens, lease.Token(), next.Token())
		l.release(next)
	}
	for i := range tokens[1:] {
		if tokens[i+1] <= tokens[i] {
			l.Errorf("tokens do not rise: %v", tokens)
		}
	}
}
