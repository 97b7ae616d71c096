package session

import "github.com/leasehold-go/leasehold/internal/clock"

// dueHeap is a min-heap of items by due time. The times lie in the heap itself, so that a
// comparison reads no item: with a million leases, reading both leases was a third of a
// client's cost of renewals. The owner's lock guards it.
type dueHeap[T any] struct {
	entries []entry[T]
	// place returns the field with an item's index in the heap, counted from 1. 0 is absent.
	place func(*T) *int32
}

type entry[T any] struct {
	at clock.Instant
	of *T
}

// first returns the item that is due first, or nil and 0 if the heap is empty.
func (a *dueHeap[T]) first() (of *T, at clock.Instant) {
	if len(a.entries) == 0 {
		return nil, 0
	}
	return a.entries[0].of, a.entries[0].at
}

// due returns the due time of an item, or 0 if it is absent.
func (a *dueHeap[T]) due(of *T) clock.Instant {
	if i := *a.place(of); i > 0 {
		return a.entries[i-1].at
	}
	return 0
}

// set adds an item, or changes its due time.
func (a *dueHeap[T]) set(of *T, at clock.Instant) {
	i := int(*a.place(of)) - 1
	if i < 0 {
		i = len(a.entries)
		a.entries = append(a.entries, entry[T]{})
	}
	a.settle(i, entry[T]{at, of})
}

// remove removes an item, if it is present.
func (a *dueHeap[T]) remove(of *T) {
	place := a.place(of)
	i, last := int(*place)-1, len(a.entries)-1
	if i < 0 {
		return
	}
	*place = 0
	e := a.entries[last]
	a.entries[last] = entry[T]{}
	a.entries = a.entries[:last]
	if i < last {
		a.settle(i, e)
	}
}

// settle moves e from the free index i to its position in the heap.
func (a *dueHeap[T]) settle(i int, e entry[T]) {
	for i > 0 && e.at < a.entries[(i-1)/2].at {
		a.put(i, a.entries[(i-1)/2])
		i = (i - 1) / 2
	}
	for {
		child := 2*i + 1
		if next := child + 1; next < len(a.entries) && a.entries[next].at < a.entries[child].at {
			child = next
		}
		if child >= len(a.entries) || a.entries[child].at >= e.at {
			break
		}
		a.put(i, a.entries[child])
		i = child
	}
	a.put(i, e)
}

func (a *dueHeap[T]) put(i int, e entry[T]) {
	a.entries[i] = e
	*a.place(e.of) = int32(i + 1)
}
