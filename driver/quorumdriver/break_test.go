package quorumdriver_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/quorumdriver"
)

// A break finds no lease at a majority and returns. When it reaches the slowest node, the
// lease may have been granted there.
func TestBreak_HR_G6_ActsOnNoLeaseThatComesAfterItsAnswer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.begun()
		all[2].delay(quorumdriver.DefaultTimeout / 2)
		a.breaks("a", driver.Gone)
		all[2].delay(0)
		a.acquire("a", driver.Granted)
		time.Sleep(2 * quorumdriver.DefaultTimeout)
		wantInside(t, all, "a")
		a.renewed("a", driver.Granted)
	})
}

func TestBreak_HR_G6_HasActedAtAllNodesThatAnswerWhenItDoes(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, all []*server, a asker) {
		a.begun()
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[3].delay(50 * time.Millisecond)
		all[4].stop()
		defer all[4].cont()
		a.breaks("a", driver.Released)
		wantInside(t, all[:4])
		a.acquire("b", driver.Granted)
	})
}

// A break also reaches a node that hangs, if its vote may belong to the majority of the lease.
func TestBreak_HR_G6_ReachesANodeThatWasSilent(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, all []*server, a asker) {
		a.begun()
		all[0].kill()
		a.acquire("a", driver.Granted)
		synctest.Wait()
		all[0].restart(false)
		all[2].stop()
		go func() {
			time.Sleep(quorumdriver.DefaultTimeout / 20)
			all[2].cont()
		}()
		a.breaks("a", driver.Released)
		wantInside(t, all[2:])
	})
}
