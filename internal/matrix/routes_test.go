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
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
)

// answer is what a service said of a lease.
type answer struct {
	State     string `json:"state"`
	Token     int64  `json:"token"`
	Remaining int64  `json:"remainingMs"`
	Type      string `json:"type"`
	Leases    []answer
	Problem   *answer
	Keys      []string
	Holders   []struct{ LeaseID string }
}

var errGaveUp = fmt.Errorf("no answer that says anything: %w", leasehold.ErrUnknown)

// send asks a service until it gets an answer of a service, and another replica each
// time: a page of somebody in between, and a 5xx, say nothing.
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

// keeps judges that the store has a lease for as long as its client was told.
func (c *cast) holdsOn(id string, token int64, until time.Time) {
	for time.Until(until) > 0 {
		snap := c.look(key)
		i := slices.IndexFunc(snap.Holders, func(h driver.Holder) bool { return h.ID == id })
		if c.lying() {
			return
		}
		switch {
		case i < 0:
			c.wrong("%v before its end the store has no lease that a client was told of: %+v", time.Until(until), snap)
			return
		case token != 0 && snap.Holders[i].Token != token:
			c.wrong("the lease has the token %d, in the store %d", token, snap.Holders[i].Token)
		}
		time.Sleep(min(100*time.Millisecond, time.Until(until)-time.Millisecond))
		if time.Until(until) <= time.Millisecond {
			return
		}
	}
}

const lease = "/v1/locks/k/leases/w"

// acquires asks for the lock, and judges what is told. held tells that somebody else
// holds it for a while.
func acquires(situation, body string, prepare func(*cast) error) *entry {
	return &entry{of: []string{"POST /v1/locks/{name}"}, situation: situation, prepare: prepare, waits: prepare != nil, call: func(ctx context.Context, c *cast) error {
		for {
			status, a, sent, err := c.send(ctx, "POST", "/v1/locks/k", body)
			switch {
			case err != nil:
				return err
			case status == 200 || status == 201:
				c.wg.Go(func() {
					c.holdsOn("w", a.Token, sent.Add(life))
				})
				return nil
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

// impatient asks for the lock by new requests, each to another replica, before those
// before it have been answered.
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

// asked has the first client hold the lock by way of a service.
func asked(c *cast) error {
	status, a, _, err := c.send(context.Background(), "POST", "/v1/locks/k", `{"leaseId":"w","ttlMs":3000,"owner":"A"}`)
	if err == nil && status != 201 {
		err = fmt.Errorf("status %d", status)
	}
	c.last = a.Token
	return err
}

// routes are the entries of the service, by method and path.
func routes() []*entry {
	soon := held(false, 700*time.Millisecond)
	all := []*entry{
		acquires("", `{"leaseId":"w","ttlMs":3000,"owner":"A"}`, nil),
		acquires("with waitMs", `{"leaseId":"w","ttlMs":3000,"waitMs":2000,"owner":"A"}`, nil),
		acquires("with waitMs, handed over", `{"leaseId":"w","ttlMs":3000,"waitMs":2000,"ticketMs":3000,"owner":"A"}`, soon),
		impatient(soon),
		acquires("asked again", `{"leaseId":"w","ttlMs":3000,"owner":"A"}`, soon),
		acquires("with ticketMs", `{"leaseId":"w","ttlMs":3000,"ticketMs":1000,"owner":"A"}`, soon),
		acquires("shared", `{"leaseId":"w","mode":"shared","ttlMs":3000,"waitMs":2000,"owner":"A"}`, soon),
		acquires("places", `{"leaseId":"w","mode":"shared","limit":2,"permits":2,"ttlMs":3000,"waitMs":2000,"owner":"A"}`, soon),
		{of: []string{"PUT /v1/locks/{name}/leases/{id}"}, prepare: asked, keeps: true, call: func(ctx context.Context, c *cast) error {
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
		{of: []string{"DELETE /v1/locks/{name}/leases/{id}"}, prepare: asked, leaves: true, keeps: true, call: func(ctx context.Context, c *cast) error {
			status, a, _, err := c.send(ctx, "DELETE", lease, "")
			if err == nil && status != 204 && status != 410 {
				err = fmt.Errorf("status %d %+v", status, a)
			}
			return err
		}},
		{of: []string{"POST /v1/locks/{name}:break"}, prepare: asked, leaves: true, keeps: true, call: func(ctx context.Context, c *cast) error {
			status, a, _, err := c.send(ctx, "POST", "/v1/locks/k:break", `{"leaseId":"w","reason":"by hand"}`)
			if err == nil && status >= 300 && status != 404 && status != 410 && status != 409 {
				err = fmt.Errorf("status %d %+v", status, a)
			}
			return err
		}},
		{of: []string{"GET /v1/locks/{name}"}, prepare: asked, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			begin := time.Now()
			status, a, _, err := c.send(ctx, "GET", "/v1/locks/k", "")
			if err == nil && !c.lying() && time.Since(begin) < 2*time.Second && (status != 200 || len(a.Holders) != 1) {
				c.wrong("status %d, %+v", status, a)
			}
			return err
		}},
		{of: []string{"GET /v1/locks"}, prepare: asked, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			begin := time.Now()
			status, a, _, err := c.send(ctx, "GET", "/v1/locks", "")
			if err == nil && !c.lying() && time.Since(begin) < 2*time.Second && (status != 200 || !slices.Equal(a.Keys, []string{key})) {
				c.wrong("status %d, %+v", status, a)
			}
			return err
		}},
		{of: []string{"GET /v1/events"}, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, "GET", "http://service/v1/events?name=k", nil)
			if err != nil {
				return err
			}
			resp, err := c.urls[0].RoundTrip(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				if strings.HasPrefix(lines.Text(), "event: lock") {
					return nil
				}
			}
			return errors.Join(lines.Err(), leasehold.ErrUnknown)
		}},
	}
	for _, pattern := range []string{"simple", "redlock", "retry", "watchdog", "reentrant", "read", "write", "fair"} {
		all = append(all, &entry{of: []string{"POST /api/locks/" + pattern + "/{resourceId}"}, slow: true, call: func(ctx context.Context, c *cast) error {
			status, a, _, err := c.send(ctx, "POST", "/api/locks/"+pattern+"/k", "")
			if err == nil && status != 200 && status != 409 {
				err = fmt.Errorf("status %d %+v", status, a)
			}
			return err
		}})
	}
	for _, path := range []string{"/health", "/livez", "/readyz", "/metrics", "/openapi.json"} {
		all = append(all, &entry{of: []string{"GET " + path}, keeps: true, reads: true, call: func(ctx context.Context, c *cast) error {
			_, _, err := c.once(ctx, "GET", path, "")
			return err
		}})
	}
	return all
}

// renewed judges the answer to a renewal.
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
