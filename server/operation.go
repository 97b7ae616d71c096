package server

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/wire"
	"github.com/leasehold-go/leasehold/server/auth"
	"github.com/leasehold-go/leasehold/server/operations"
)

func operationRoutes() []route {
	var all []route
	for _, p := range operations.Patterns() {
		rt := Route{
			Method: http.MethodPost, Path: "/api/locks/" + p.Name + "/{resourceId}", Operation: p.Name,
			Summary: "Execute the operation " + p.Summary, Verb: auth.Acquire, Reply: Executed{},
			Success: []int{http.StatusOK}, Refusals: map[int]any{http.StatusConflict: Locked{}},
			Causes: []*Cause{TooLarge, TooMany, Mismatch, Unprotected, Failed, Unsupported, Draining},
		}
		if p.Name == "redlock" {
			rt.Refusals[http.StatusServiceUnavailable] = NoQuorum{}
		} else {
			rt.Causes = append(rt.Causes, Unavailable, Unknown)
		}
		all = append(all, route{Route: rt, Handle: func(s *Server, w *answer, r *http.Request) error { return s.execute(w, r, &p) }})
	}
	return all
}

// Executed is the answer to an operation that was done, under a lease that was
// valid to its end.
type Executed struct {
	Success    bool        `json:"success"`
	ResourceID string      `json:"resourceId"`
	Duration   wire.Millis `json:"durationMs"`
}

// Locked is the answer to an operation that was not begun because its lock is held.
type Locked struct {
	Error      string      `json:"error"`
	RetryAfter wire.Millis `json:"retryAfterMs"`
}

// NoQuorum is the answer to an operation that was not begun because a majority of stores did
// not answer.
type NoQuorum struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// execute runs the operation under the lock of a resource.
func (s *Server) execute(w *answer, r *http.Request, p *operations.Pattern) error {
	name, err := lockName(&w.x, "")
	if err != nil {
		return err
	}
	if err := drained(r); err != nil {
		return err
	}
	took, err := s.operations.Execute(r.Context(), name, p)
	switch {
	case err != nil && gone(r.Context()):
		return errVanished
	case err != nil:
		return notBegun(w, err)
	}
	exactly(w, http.StatusOK, Executed{Success: true, ResourceID: name, Duration: wire.MillisOf(took)})
	return nil
}

// notBegun answers with the reason why an operation was not begun.
func notBegun(w *answer, err error) error {
	var held *leasehold.HeldError
	switch {
	case errors.As(err, &held):
		after := wire.MillisOf(cmp.Or(max(held.Remaining, 0), retryLater))
		w.Header().Set("Retry-After", seconds(after.Duration()))
		exactly(w, http.StatusConflict, Locked{Error: "Resource locked", RetryAfter: after})
		return nil
	case errors.Is(err, leasehold.ErrNoQuorum):
		exactly(w, http.StatusServiceUnavailable, NoQuorum{
			Error: "Quorum not reached", Message: "Unable to acquire lock on majority of instances",
		})
		return nil
	}
	return err
}

// exactly answers with a JSON body that is specified byte for byte.
func exactly(w *answer, status int, body any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(body); err != nil {
		panic(err) // every body can be encoded
	}
	w.send(status, "application/json", bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// drained reads a body and ignores it. After that net/http notices when the client disconnects.
func drained(r *http.Request) error {
	_, err := io.Copy(io.Discard, r.Body)
	return bodyError(err)
}
