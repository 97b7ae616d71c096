package line

import "container/list"

// ranks counts how many calls of a line have a number of at most n, in O(log n), so that many
// calls can give up at once. It is a Fenwick tree (P. M. Fenwick, "A new data structure for
// cumulative frequency tables", 1994) over the numbers from first on.
type ranks struct {
	first int
	tree  []int
}

// join counts a call that was put into the line with a number.
func (r *ranks) join(wait *list.List, number int) {
	if r.first <= number && number-r.first+1 < len(r.tree) {
		r.add(number, 1)
		return
	}
	r.first = number
	last := number
	for e := wait.Front(); e != nil; e = e.Next() {
		n := e.Value.(*Call).number
		r.first, last = min(r.first, n), max(last, n)
	}
	r.tree = make([]int, last-r.first+2+max(2*wait.Len(), 64))
	for e := wait.Front(); e != nil; e = e.Next() {
		r.add(e.Value.(*Call).number, 1)
	}
}

// add adds n to the count of a number.
func (r *ranks) add(number, n int) {
	for i := number - r.first + 1; i < len(r.tree); i += i & -i {
		r.tree[i] += n
	}
}

// rank returns how many calls have at most this number.
func (r *ranks) rank(number int) (n int) {
	for i := number - r.first + 1; i > 0; i -= i & -i {
		n += r.tree[i]
	}
	return n
}
