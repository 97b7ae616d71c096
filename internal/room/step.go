package room

// Step is one call of the rule, as a store takes it: [Acquire] with a request, for
// instance. An error leaves the record as it was, except for expired entries.
type Step interface {
	Step(r *Record, now int64) ([]Wake, error)
}
