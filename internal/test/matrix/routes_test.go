package matrix_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// answer is a lease in the answer of a service.
type answer struct {
	State     string `json:"state"`
	Token     int64  `json:"token"`
	Remaining int64  `json:"remainingMs"`
	Type      string `json:"type"`
	Leases    []answer
	Problem   *answer
	Keys      []string
	Rows      []struct{ Key string }
	Holders   []struct{ LeaseID string }
}

var errGaveUp = fmt.Errorf("no useful answer: %w", leasehold.ErrUnknown)

// send repeats a request until a service answers, each time to the next replica. It ignores pages
// of gateways, and 5xx.
func (c *cast) send(ctx context.Context, method, path, body string) (status int, a answer, sent time.Time, err error) {
	for range 6 {
		sent = time.Now()
		status, a, err = c.once(ctx, method, path, body)
		if ctx.Err() != nil {
			return 0, a, sent, context.Cause(ctx)
		}
		if err == nil && status < 500 {
			return status, a, sent, nil
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return 0, a, sent, errGaveUp
}

func (c *cast) once(ctx context.Context, method, path, body string) (status int, a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://service"+path, strings.NewReader(body))
	if err != nil {
		return 0, a, err
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.raw.RoundTrip(req)
	if err != nil {
		return 0, a, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && len(text) > 0 && strings.Contains(resp.Header.Get("Content-Type"), "json") {
		err = json.Unmarshal(text, &a)
	} else if err == nil && len(text) > 0 && strings.Contains(string(text), "<html>") {
		err = errNoAnswer
	}
	return resp.StatusCode, a, err
}

// holdsOn checks that the store has a lease until the end that its client was promised.
func (c *cast) holdsOn(id string, token int64, until time.Time) {
	for time.Until(until) > 0 {
		snap := c.look(key)
		i := slices.IndexFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id })
		if c.lying() {
			return
		}
		switch {
		case i < 0:
			c.wrong("%v before its end a lease that a client was promised is not in the store: %+v", time.Until(until), snap)
			return
		case token != 0 && snap.Holders[i].Token != token && len(c.tables) == 1:
			c.wrong("the lease has the token %d, in the store %d", token, snap.Holders[i].Token)
		}
		time.Sleep(min(100*time.Millisecond, time.Until(until)-time.Millisecond))
		if time.Until(until) <= time.Millisecond {
			return
		}
	}
}

const lease = "/v1/locks/k/leases/w"

// acquires asks for the lock, and checks the answer. If prepare is not nil, the second client
// holds the lock for a while.
func acquires(situation, body string, prepare func(*cast) error) *entry {
	return &entry{of: []string{"POST /v1/locks/{name}", "POST /v1/locks"}, situation: situation, prepare: prepare, waits: prepare != nil, call: func(ctx context.Context, c *cast) error {
		body, leaves := body, strings.Contains(body, `"ticketMs":0,`)
		// A lease that the client leaves behind lasts, unless it is undone. A request that arrives
		// after the undo is not undone, nor forbidden: the client's next request may have the same
		// id.
		if c.behind && c.d.during && c.d.fate != stuck {
			body = strings.Replace(body, `"ttlMs":3000`, `"ttlMs":60000`, 1)
		}
		for {
			status, a, sent, err := c.send(ctx, "POST", "/v1/locks/k", body)
			switch {
			case err != nil:
				return err
			case status == 200 || status == 201:
				until := sent.Add(life)
				if told := time.Now().Add(time.Duration(a.Remaining) * time.Millisecond); c.behind && told.After(until) {
					until = told // the answer has taken no time
				}
				c.wg.Go(func() { c.holdsOn("w", a.Token, until) })
				return nil
			case status == 409 && c.behind && leaves && !slices.Contains([]fate{late, doubled}, c.d.fate) && c.d.then != late:
				c.absent("the answer was that it no longer waits")
				fallthrough
			case status == 202 || status == 409 && prepare != nil:
				time.Sleep(200 * time.Millisecond)
				if err := context.Cause(ctx); err != nil {
					return err
				}
			case status == 409 && c.lying():
				return leasehold.ErrUnknown
			default:
				return fmt.Errorf("status %d %+v", status, a)
			}
		}
	}}
}

// impatient asks for the lock by new requests, each to the next replica, before the previous
// requests are answered.
func impatient(prepare func(*cast) error) *entry {
	return &entry{of: []string{"POST /v1/locks/{name}"}, situation: "with waitMs, by several requests", prepare: prepare, waits: true, call: func(ctx context.Context, c *cast) error {
		for range 30 {
			begin := time.Now()
			visit, cancel := context.WithTimeout(ctx, 400*time.Millisecond)
			status, a, err := c.once(visit, "POST", "/v1/locks/k", `{"leaseId":"w","ttlMs":3000,"waitMs":2000,"owner":"A"}`)
			cancel()
			if err == nil && (status == 200 || status == 201) {
				c.wg.Go(func() { c.holdsOn("w", a.Token, begin.Add(life)) })
				return nil
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			time.Sleep(10 * time.Millisecond)
		}
		return errGaveUp
	}}
}

// crowd asks for the lock by three requests, and awaits the first grant or all answers: without a
// disturbance one answer is the grant, and the remaining two report the same lease.
func crowd(situation string, awaitsAll bool, prepare func(*cast) error) *entry {
	return &entry{of: []string{"POST /v1/locks/{name}"}, situation: situation, prepare: prepare, waits: true, call: func(ctx context.Context, c *cast) error {
		all, enough := context.WithCancel(ctx)
		defer enough()
		var statuses [3]int
		var wg sync.WaitGroup
		for i := range statuses {
			begin := time.Now()
			wg.Go(func() {
				status, a, err := c.once(all, "POST", "/v1/locks/k", `{"leaseId":"w","ttlMs":3000,"waitMs":2000,"owner":"A"}`)
				if err != nil {
					return
				}
				if statuses[i] = status; status == 200 || status == 201 {
					c.wg.Go(func() { c.holdsOn("w", a.Token, begin.Add(life)) })
					if !awaitsAll {
						enough()
					}
				}
			})
			if !awaitsAll && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		wg.Wait()
		slices.Sort(statuses[:])
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case awaitsAll && !c.disturbed() && statuses != [3]int{200, 200, 201}:
			c.wrong("three requests for one lease were answered by %v", statuses)
		case !slices.Contains(statuses[:], 200) && !slices.Contains(statuses[:], 201):
			return errGaveUp
		}
		return nil
	}}
}

// answered records the answer to an acquire that was sent at the given time, and reports whether
// the entry has ended.
func (c *cast) answered(status int, a answer, sent time.Time, err error) (over bool, _ error) {
	switch {
	case err != nil:
		return true, err
	case status == 200 || status == 201:
		c.wg.Go(func() { c.holdsOn("w", a.Token, sent.Add(life)) })
		return true, nil
	case status != 202 && status != 409:
		return true, fmt.Errorf("status %d %+v", status, a)
	}
	return false, nil
}

// cut asks for the lock by a request that loses its connection, and by another request, before
// which the second client has asked. Without a disturbance until then the place is kept, so that the
// second request is served first.
func cut(prepare func(*cast) error) *entry {
	return &entry{of: []string{"POST /v1/locks/{name}"}, situation: "with ticketMs, cut off, and asked again", prepare: prepare, waits: true, call: func(ctx context.Context, c *cast) error {
		const body = `{"leaseId":"w","ttlMs":3000,"waitMs":2000,"ticketMs":3000,"owner":"A"}`
		first, end := context.WithTimeout(ctx, 300*time.Millisecond)
		_, _, err := c.once(first, "POST", "/v1/locks/k", body)
		end()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		kept := err != nil && !c.disturbed() // it waited until it was cut off
		rival := make(chan struct{})
		c.wg.Go(func() {
			all, end := context.WithTimeout(context.Background(), time.Minute)
			defer end()
			if l, err := c.b.Mutex(key).Lock(all); err == nil {
				close(rival)
				_ = l.Release()
			}
		})
		time.Sleep(100 * time.Millisecond)
		for {
			status, a, sent, err := c.send(ctx, "POST", "/v1/locks/k", body)
			if over, err := c.answered(status, a, sent, err); over {
				select {
				case <-rival:
					if err == nil && kept && !c.disturbed() {
						c.wrong("its place was not kept")
					}
				default:
				}
				return err
			}
			time.Sleep(200 * time.Millisecond)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}}
}

// notified asks for the lock at one replica with the address of a stream of the other replica, and
// checks that the stream reports its turn: without a disturbance until then it does, also if the
// connection of the stream has ended in between.
func notified(situation string, lost bool, prepare func(*cast) error) *entry {
	return &entry{of: []string{"POST /v1/locks/{name}"}, situation: situation, prepare: prepare, waits: true, call: func(ctx context.Context, c *cast) error {
		stream := c.attend(ctx, "")
		defer func() { stream.end() }()
		body := fmt.Sprintf(`{"leaseId":"w","ttlMs":3000,"ticketMs":4000,"notify":%s,"owner":"A"}`, stream.address)
		for lost := lost; ; {
			status, a, sent, err := c.send(ctx, "POST", "/v1/locks/k", body)
			if over, err := c.answered(status, a, sent, err); over {
				return err
			}
			undisturbed := status == 202 && !c.disturbed()
			if lost && undisturbed {
				stream.end()
				time.Sleep(time.Second) // it misses the events of this second
				stream, lost = c.attend(ctx, stream.last), false
			}
			select {
			case <-stream.events:
			case <-time.After(2 * time.Second):
				if undisturbed && !c.disturbed() {
					c.wrong("no stream reports its turn")
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}}
}

// stream is a stream of events without faults.
type stream struct {
	address string        // as JSON
	last    string        // the id of its beginning
	events  <-chan string // after that
	end     func()
}

// attend opens a stream of the second replica. If last is not empty, the stream continues after
// that event, and has no address of its own.
func (c *cast) attend(ctx context.Context, last string) *stream {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &stream{address: `""`, end: cancel}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/v1/events", nil)
	if err != nil {
		c.wrong("%v", err)
		return s
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := c.urls[1].RoundTrip(req)
	if err != nil {
		return s
	}
	ready, told := make(chan [2]string, 1), make(chan string, 100)
	s.events = told
	c.strays.Go(func() {
		defer resp.Body.Close()
		id := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = text
			}
			if address, ok := strings.CutPrefix(lines.Text(), `data: {"address":`); ok {
				select {
				case ready <- [2]string{strings.TrimSuffix(address, "}"), id}:
				default:
				}
			}
			if event, ok := strings.CutPrefix(lines.Text(), "event: "); ok && event != "ready" {
				select {
				case told <- event:
				default: // so many are known
				}
			}
		}
	})
	if last == "" {
		select {
		case got := <-ready:
			s.address, s.last = got[0], got[1]
		case <-time.After(attention):
		}
	}
	return s
}

// asked makes the first client hold the lock by way of a service.
func asked(c *cast) error {
	status, a, _, err := c.send(context.Background(), "POST", "/v1/locks/k", `{"leaseId":"w","ttlMs":3000,"owner":"A"}`)
	if err == nil && status != 201 {
		err = fmt.Errorf("status %d", status)
	}
	c.last = a.Token
	return err
}

// several renews a second lock too, after the break of its lease.
func several(c *cast) error {
	ctx := context.Background()
	for _, r := range []struct {
		path, body string
		status     int
	}{
		{"/v1/locks/k2", `{"leaseId":"broken","ttlMs":3000,"owner":"A"}`, 201},
		{"/v1/locks/k2:break", `{"leaseId":"broken","reason":"by hand"}`, 200},
	} {
		if status, _, _, err := c.send(ctx, "POST", r.path, r.body); err != nil || status != r.status {
			return fmt.Errorf("%s: status %d, %w", r.path, status, err)
		}
	}
	return asked(c)
}

// sends asks a route, which has to answer with one of the statuses.
func sends(method, path, body string, statuses ...int) func(context.Context, *cast) error {
	return func(ctx context.Context, c *cast) error {
		status, a, _, err := c.send(ctx, method, path, body)
		if err == nil && !slices.Contains(statuses, status) {
			err = fmt.Errorf("status %d %+v", status, a)
		}
		return err
	}
}

// shows asks a route, which has to show the lease unless the answer takes longer than the time.
func shows(path string, within time.Duration, shown func(answer) bool) func(context.Context, *cast) error {
	return func(ctx context.Context, c *cast) error {
		begin := time.Now()
		status, a, _, err := c.send(ctx, "GET", path, "")
		if err == nil && !c.lying() && time.Since(begin) < within && (status != 200 || !shown(a)) {
			c.wrong("status %d, %+v", status, a)
		}
		return err
	}
}

// noStore are the paths of which a service answers without its store.
var noStore = []string{"/health", "/livez", "/metrics", "/openapi.json"}

// notOnQuorums are the situations of an acquire that need sharers, or a queue.
var notOnQuorums = []string{"shared", "places", "with notify, by another replica", "with notify, and the stream goes on", "with ticketMs, cut off, and asked again"}

// routes are the entries of the service, by method and path. The forms of an operation, with
// the name of the lock in the path and without, share a row, which plays the first. The driver uses
// the second.
func routes() []*entry {
	soon := held(false, 700*time.Millisecond)
	all := []*entry{
		acquires("", `{"leaseId":"w","ttlMs":3000,"owner":"A"}`, nil),
		acquires("with waitMs", `{"leaseId":"w","ttlMs":3000,"waitMs":2000,"owner":"A"}`, nil),
		acquires("with waitMs, handed over", `{"leaseId":"w","ttlMs":3000,"waitMs":2000,"ticketMs":3000,"owner":"A"}`, soon),
		impatient(soon),
		crowd("with waitMs, by three requests at once", false, soon), // two of them to one replica
		crowd("with waitMs, by three requests that are all awaited", true, soon),
		cut(soon),
		acquires("with waitMs, without a place", `{"leaseId":"w","ttlMs":3000,"waitMs":300,"ticketMs":0,"owner":"A"}`, held(false, 1500*time.Millisecond)),
		acquires("asked again", `{"leaseId":"w","ttlMs":3000,"owner":"A"}`, soon),
		acquires("with ticketMs", `{"leaseId":"w","ttlMs":3000,"ticketMs":1000,"owner":"A"}`, soon),
		notified("with notify, by another replica", false, soon),
		notified("with notify, and the stream goes on", true, soon),
		acquires("shared", `{"leaseId":"w","mode":"shared","ttlMs":3000,"waitMs":2000,"owner":"A"}`, soon),
		acquires("places", `{"leaseId":"w","mode":"shared","limit":2,"permits":2,"ttlMs":3000,"waitMs":2000,"owner":"A"}`, soon),
		{of: []string{"PUT /v1/locks/{name}/leases/{id}", "PUT /v1/leases"}, prepare: asked, keeps: true, call: func(ctx context.Context, c *cast) error {
			status, _, sent, err := c.send(ctx, "PUT", lease, `{"ttlMs":3000}`)
			return c.renewed(status, sent, err)
		}},
		{of: []string{"POST /v1/leases:renew"}, prepare: asked, keeps: true, call: func(ctx context.Context, c *cast) error {
			status, a, sent, err := c.send(ctx, "POST", "/v1/leases:renew", `{"leases":[{"key":"k","leaseId":"w","ttlMs":3000}]}`)
			if err == nil && status == 200 && len(a.Leases) == 1 && a.Leases[0].State != "held" {
				status = 410
				if a.Leases[0].State == "" {
					return leasehold.ErrUnknown
				}
			}
			return c.renewed(status, sent, err)
		}},
		{of: []string{"POST /v1/leases:renew"}, situation: "of which only one is held", prepare: several, keeps: true, call: func(ctx context.Context, c *cast) error {
			status, a, sent, err := c.send(ctx, "POST", "/v1/leases:renew", `{"leases":[{"key":"k2","leaseId":"broken","ttlMs":3000},{"key":"k","leaseId":"w","ttlMs":3000},{"key":"k","leaseId":"never","ttlMs":3000}]}`)
			if err != nil || status != 200 || len(a.Leases) != 3 {
				return c.renewed(status, sent, err)
			}
			for _, i := range []int{0, 2} {
				if a.Leases[i].State == "held" {
					c.wrong("renewed a lease that is not held: %+v", a.Leases[i])
				}
			}
			switch a.Leases[1].State {
			case "held":
			case "":
				return leasehold.ErrUnknown
			default:
				status = 410
			}
			return c.renewed(status, sent, err)
		}},
		{of: []string{"DELETE /v1/locks/{name}/leases/{id}", "POST /v1/leases:release"}, prepare: asked, leaves: true, keeps: true, call: sends("DELETE", lease, "", 204, 410)},
		{of: []string{"POST /v1/locks/{name}:break", "POST /v1/locks:break"}, prepare: asked, leaves: true, keeps: true, call: sends("POST", "/v1/locks/k:break", `{"leaseId":"w","reason":"by hand"}`, 200, 404, 409, 410)},
		{of: []string{"GET /v1/locks/{name}", "GET /v1/locks:inspect"}, prepare: asked, keeps: true, reads: true, call: shows("/v1/locks/k", 2*time.Second, func(a answer) bool { return len(a.Holders) == 1 })},
		{of: []string{"GET /v1/locks"}, prepare: asked, keeps: true, reads: true, call: shows("/v1/locks", 2*time.Second, func(a answer) bool { return slices.Equal(a.Keys, []string{key}) })},
		{of: []string{"GET /v1/events"}, keeps: true, reads: true, call: delivers("/v1/events?name=k", "lock")},
	}
	for _, pattern := range []string{"simple", "redlock", "retry", "watchdog", "reentrant", "read", "write", "fair"} {
		all = append(all, &entry{of: []string{"POST /api/locks/" + pattern + "/{resourceId}"}, slow: true, call: sends("POST", "/api/locks/"+pattern+"/k", "", 200, 409)})
	}
	for _, path := range []string{"/health", "/livez", "/readyz", "/metrics", "/openapi.json"} {
		all = append(all, &entry{of: []string{"GET " + path}, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			_, _, err := c.once(ctx, "GET", path, "")
			return err
		}})
	}
	for _, e := range all {
		// It is as on a store, or needs a property that a quorum lacks.
		if !strings.Contains(e.of[0], "/v1/l") || strings.HasPrefix(e.of[0], "GET") || slices.Contains(notOnQuorums, e.situation) {
			e.notOn = append(e.notOn, "quorum routes")
		}
		if slices.Contains(noStore, strings.TrimPrefix(e.of[0], "GET ")) {
			e.notOn = append(e.notOn, "behind")
		}
	}
	return all
}

// delivers opens streams one after the other until one delivers the event, and fails otherwise.
func delivers(path, event string) func(context.Context, *cast) error {
	return func(ctx context.Context, c *cast) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute/2)
		defer cancel()
		for ctx.Err() == nil {
			if c.receives(ctx, path, event) {
				return nil
			}
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
		}
		if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			c.wrong("the service is back, and no stream reports the lock")
		}
		return context.Cause(ctx)
	}
}

// listen reads the first replica's stream of the lock, without faults, until it ends or the
// function is called.
func (c *cast) listen() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service/v1/events?name=k", nil)
	if err != nil {
		c.wrong("%v", err)
		return cancel
	}
	resp, err := c.urls[0].RoundTrip(req)
	if err != nil {
		c.wrong("a stream: %v", err)
		return cancel
	}
	c.strays.Go(func() {
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
	})
	return cancel
}

// receives reads a stream until an event comes.
func (c *cast) receives(ctx context.Context, path, event string) bool {
	ctx, cancel := context.WithTimeout(ctx, attention)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://service"+path, nil)
	if err != nil {
		c.wrong("%v", err)
		return false
	}
	resp, err := c.raw.RoundTrip(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	defer context.AfterFunc(ctx, func() { _ = resp.Body.Close() })()
	lines := bufio.NewScanner(resp.Body)
	for ready := true; lines.Scan(); {
		if address, ok := strings.CutPrefix(lines.Text(), `data: {"address":`); ok && ready {
			if ready = false; address == `""}` {
				c.wrong("a stream is ready without an address")
			}
		}
		if lines.Text() == "event: "+event {
			return true
		}
	}
	return false
}

// pages are the entries that only a service with a page for people has.
func pages() []*entry {
	return []*entry{
		{of: []string{"GET /v1/overview"}, prepare: asked, keeps: true, reads: true, call: shows("/v1/overview", time.Second, func(a answer) bool { return len(a.Rows) == 1 && a.Rows[0].Key == key })},
		{of: []string{"GET /v1/overview/lock"}, prepare: asked, keeps: true, reads: true, call: shows("/v1/overview/lock?name=k", time.Second, func(a answer) bool { return len(a.Holders) == 1 })},
		{of: []string{"GET /v1/overview/health"}, prepare: asked, keeps: true, reads: true, call: shows("/v1/overview/health", time.Second, func(answer) bool { return true })},
	}
}

// renewed checks the answer to a renewal.
func (c *cast) renewed(status int, sent time.Time, err error) error {
	switch {
	case err != nil:
		return err
	case status == 200:
		c.wg.Go(func() { c.holdsOn("w", 0, sent.Add(life)) })
		return nil
	case status == 410:
		if !c.lying() && slices.ContainsFunc(c.look(key).Holders, func(h driver.Holder) bool { return h.ID == "w" }) {
			c.wrong("a lease that the store has is gone")
		}
		return leasehold.ErrLost
	}
	return fmt.Errorf("status %d", status)
}
