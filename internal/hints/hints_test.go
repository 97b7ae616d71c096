package hints_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/hints"
)

// heard collects the ids of hints.
type heard struct {
	mu  sync.Mutex
	ids []string
}

func (h *heard) add(hint driver.Hint) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids = append(h.ids, hint.ID)
}

func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.ids
	h.ids = nil
	return ids
}

func add(t *testing.T, all *hints.Subscriptions, f func(driver.Hint)) *hints.Subscription {
	t.Helper()
	s, err := all.Add(f)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSubscriptions_DeliverInOrderToTheNumberThatIsMeant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all hints.Subscriptions
		var a, b heard
		sub := add(t, &all, a.add)
		other := add(t, &all, b.add)
		var want []string
		for i := range 100 {
			want = append(want, strconv.Itoa(i))
			all.Deliver(sub.Number(), driver.Hint{ID: strconv.Itoa(i)})
		}
		all.Deliver("99", driver.Hint{ID: "nobody's"})
		synctest.Wait()
		if got := a.take(); !slices.Equal(got, want) {
			t.Errorf("heard %q", got)
		}
		if got := b.take(); got != nil {
			t.Errorf("another heard %q", got)
		}
		all.Resync()
		synctest.Wait()
		if len(a.take()) != 1 || len(b.take()) != 1 {
			t.Error("a resync did not reach all")
		}
		all.DeliverAll(driver.Hint{ID: "everybody"})
		synctest.Wait()
		if got := append(a.take(), b.take()...); !slices.Equal(got, []string{"everybody", "everybody"}) {
			t.Errorf("heard %q", got)
		}
		other.Close()
		all.DeliverAll(driver.Hint{ID: "late"})
		all.Deliver(other.Number(), driver.Hint{ID: "late"})
		synctest.Wait()
		if got := b.take(); got != nil {
			t.Errorf("heard %q after its close", got)
		}
	})
}

func TestSubscriptions_CloseWaitsForACallUnderWayAndDropsTheRest(t *testing.T) {
	for name, end := range map[string]func(*hints.Subscriptions, *hints.Subscription){
		"one": func(_ *hints.Subscriptions, s *hints.Subscription) { s.Close() },
		"all": func(all *hints.Subscriptions, _ *hints.Subscription) { all.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all hints.Subscriptions
				calls, goOn := 0, make(chan struct{})
				var sub *hints.Subscription
				sub = add(t, &all, func(driver.Hint) {
					calls++
					all.Deliver(sub.Number(), driver.Hint{}) // it may call the driver
					<-goOn
				})
				all.Deliver(sub.Number(), driver.Hint{})
				synctest.Wait()
				closed := make(chan struct{})
				go func() {
					defer close(closed)
					end(&all, sub)
				}()
				synctest.Wait()
				select {
				case <-closed:
					t.Error("closed while a call was under way")
				default:
				}
				close(goOn)
				<-closed
				if calls != 1 {
					t.Errorf("%d calls", calls)
				}
				end(&all, sub) // again
			})
		})
	}
}

func TestSubscriptions_AddAfterCloseFails(t *testing.T) {
	var all hints.Subscriptions
	all.Close()
	if _, err := all.Add(func(driver.Hint) {}); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}
