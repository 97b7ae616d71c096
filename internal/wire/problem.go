package wire

// ProblemMedia is the media type of a Problem.
const ProblemMedia = "application/problem+json"

// ProblemTypes is the prefix of every problem type; the name of the cause follows.
const ProblemTypes = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#"

// Problem is an error by RFC 9457, with extension members.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`

	Key     string `json:"key,omitempty"`
	LeaseID string `json:"leaseId,omitempty"`
	// RetryAfter is the time until a retry may succeed; FreeIn and Holders are as in Lease.
	RetryAfter Millis   `json:"retryAfterMs,omitempty"`
	FreeIn     Millis   `json:"freeInMs,omitempty"`
	Holders    []Holder `json:"holders,omitempty"`
	Clock      int64    `json:"clockUs,omitempty"`
	// Repeated is as in Lease.
	Repeated bool `json:"repeated,omitempty"`
	// Broken and Reason describe a lease that was ended by force.
	Broken bool   `json:"broken,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// The causes that are an answer of the store, by the names in their types.
const (
	CauseHeld     = "held"
	CauseGone     = "gone"
	CauseBroken   = "broken"
	CauseReleased = "released"
	CauseNotHeld  = "not-held"
)
