package s3driver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/leasehold-go/leasehold/driver"
)

// proof is a probe, and its result.
type proof struct {
	done    chan struct{} // closed when the probe has ended
	err     error
	deletes bool // the store deletes by a condition
}

// prove returns how the store keeps conditions. The first write of a driver tries that on an
// object of its own: a store that ignores a condition would grant a lock to each caller. A probe
// outlives its callers, so it also ends if all of them have little time. A failed probe is repeated
// by the next write.
func (b *bucket) prove(ctx context.Context) (*proof, error) {
	p := b.latest()
	select {
	case <-p.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: a probe of conditional writes is under way: %w", driver.ErrUnavailable, ctx.Err())
	}
	if p.err != nil {
		return nil, fmt.Errorf("a probe of conditional writes: %w", p.err)
	}
	return p, nil
}

// latest returns the probe that has succeeded or is under way, or begins one.
func (b *bucket) latest() *proof {
	b.probing.Lock()
	defer b.probing.Unlock()
	if p := b.proof; p != nil {
		select {
		case <-p.done:
			if p.err == nil {
				return p
			}
		default:
			return p
		}
	}
	p := &proof{done: make(chan struct{})}
	if b.ctx.Err() != nil {
		p.err = driver.ErrClosed
		close(p.done)
		return p
	}
	b.proof = p
	b.work.Go(func() {
		defer close(p.done)
		p.deletes, p.err = b.probe(b.ctx)
	})
	return p
}

// probe plays all conditions on an object with a random name, and removes it. Deletion by a
// condition is younger than writing by one: without it removed records stay as empty objects.
func (b *bucket) probe(ctx context.Context) (deletes bool, _ error) {
	const unknown = `"00000000000000000000000000000000"`
	t := &trial{bucket: b, ctx: ctx, object: b.probeName()}
	first := t.put("", "1", "an object that is missing", http.StatusOK)
	defer t.clean()
	t.put("", "2", "an object that is missing, which it is not", http.StatusPreconditionFailed)
	t.put(unknown, "3", "an object with an ETag that it never had", http.StatusPreconditionFailed)
	t.get("1", first)
	second := t.put(first, "4", "an object with its ETag", http.StatusOK)
	t.get("4", second)
	t.put(first, "5", "an object with an ETag that it no longer has", http.StatusPreconditionFailed)
	deletes = t.remove(first) == http.StatusPreconditionFailed && gone(t.remove(second)) && missing(t.remove(second))
	t.clean()
	if status := t.write(second, "6"); t.err == nil && !missing(status) {
		t.wrong("an object with an ETag, which is missing", status)
	}
	return deletes, t.err
}

// probeName returns the name of an object of its own.
func (b *bucket) probeName() string { return b.prefix + "/probe/" + rand.Text() }

var probeForm = regexp.MustCompile(`^/probe/[A-Z2-7]{26}$`)

// isProbe reports whether an object has the name of a probe. Records have a suffix.
func (b *bucket) isProbe(object string) bool {
	return probeForm.MatchString(strings.TrimPrefix(object, b.prefix))
}

func gone(status int) bool { return status == http.StatusNoContent || status == http.StatusOK }

func missing(status int) bool {
	return status == http.StatusNotFound || status == http.StatusPreconditionFailed
}

// trial is the use of one object. After an error its methods make no request.
type trial struct {
	*bucket
	ctx    context.Context
	object string
	etag   string // of the last write
	err    error
}

// do makes a request and returns the status of the answer. It fails without an answer, and if time,
// or a right, is needed first: such an answer shows nothing about conditions.
func (t *trial) do(f func(*request) error) (status int) {
	if t.err != nil {
		return 0
	}
	r := t.request(t.ctx)
	defer r.cancel()
	err := f(r)
	explained := r.explain(err)
	switch {
	case r.status == 0, r.status >= http.StatusInternalServerError, errors.Is(explained, driver.ErrUnavailable),
		r.status == http.StatusConflict, r.status == http.StatusTooManyRequests, r.code(err) == "RequestTimeout":
		t.err = explained
	}
	return r.status
}

func (t *trial) write(version, content string) (status int) {
	return t.do(func(r *request) (err error) {
		t.etag, err = t.bucket.put(r, t.object, version, []byte(content))
		return err
	})
}

// put writes the object by a condition, and fails if the answer is another one.
func (t *trial) put(version, content, which string, want int) (etag string) {
	if status := t.write(version, content); t.err == nil && status != want {
		t.wrong(which, status)
	}
	return t.etag
}

// get reads the object, and fails if it is another one.
func (t *trial) get(content, etag string) {
	t.do(func(r *request) error {
		found, version, _, err := t.bucket.get(r, t.object)
		if err == nil && (string(found) != content || version != etag) {
			err = refusal(fmt.Sprintf("the store returned %q with the ETag %s after it had acknowledged %q with %s: "+
				"take a store, and a path to it, without a cache, compression or delayed writes", found, version, content, etag))
		}
		return err
	})
}

// remove deletes the object by a condition.
func (t *trial) remove(version string) (status int) {
	status = t.do(func(r *request) error { return t.bucket.remove(r, t.object, version) })
	if slices.Contains([]int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented}, status) {
		t.err = nil // it does not know the condition
	}
	return status
}

// clean removes the object, also after an error. Sweeps remove one that is left.
func (t *trial) clean() {
	r := t.request(t.ctx)
	defer r.cancel()
	if err := t.bucket.remove(r, t.object, ""); err != nil && t.err == nil && r.code(err) != "NoSuchKey" {
		t.err = r.explain(err)
	}
}

func (t *trial) wrong(which string, status int) {
	t.err = refusal(fmt.Sprintf("the store answered %d to a request to write %s: locks need conditional writes "+
		"(If-Match and If-None-Match), take a store that has them", status, which))
}
