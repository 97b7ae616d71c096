package quorumdriver

import (
	"sync"
	"sync/atomic"
)

// crew runs calls in goroutines that stay for the next call: their stacks have
// grown to what the nodes' drivers need, which is half of what a fresh one costs.
type crew struct {
	jobs chan job
	quit chan struct{} // closed in the end
	most int32         // that stay idle
	idle atomic.Int32
	all  sync.WaitGroup
}

// job is the part of some work that concerns one node.
type job struct {
	work interface{ do(i int) }
	node int
}

func newCrew(most int) *crew {
	return &crew{jobs: make(chan job), quit: make(chan struct{}), most: int32(most)}
}

// run has a job done by whoever is idle, or by one more.
func (c *crew) run(j job) {
	select {
	case c.jobs <- j:
	default:
		c.all.Go(func() { c.stay(j) })
	}
}

func (c *crew) stay(j job) {
	for {
		j.work.do(j.node)
		if c.idle.Add(1) > c.most {
			c.idle.Add(-1)
			return
		}
		select {
		case j = <-c.jobs:
			c.idle.Add(-1)
		case <-c.quit:
			return
		}
	}
}

// dismiss ends those who are idle, and the others when they have done their jobs.
// Nothing is run any more.
func (c *crew) dismiss() { close(c.quit) }
