package httpdriver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// Bounds of one request to renew: a service limits the size of a request, and a store that
// is slow for some leases should delay few other leases.
const (
	maxBatch = 200
	maxBytes = 32 << 10
)

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	var (
		mu sync.Mutex // each is never called concurrently
		wg sync.WaitGroup
	)
	for begin := 0; begin < len(refs); {
		first, end := begin, cut(refs, begin)
		wg.Go(func() {
			d.renew(ctx, refs[first:end], func(i int, got driver.Reply, err error) {
				mu.Lock()
				defer mu.Unlock()
				each(first+i, got, err)
			})
		})
		begin = end
	}
	wg.Wait()
}

// cut returns the end of the batch that starts at begin.
func cut(refs []driver.Ref, begin int) int {
	end, size := begin, 0
	for end < len(refs) && end-begin < maxBatch && (size < maxBytes || end == begin) {
		size += 150 + 2*len(refs[end].Key) + len(refs[end].ID) + len(refs[end].HintAddress) + len(refs[end].Visit) // a quote doubles
		end++
	}
	return end
}

// renew sends one batch. A batch that is too large for the service or a program on the
// way is sent in halves.
func (d *Driver) renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	body := wire.Renewals{Leases: make([]wire.Renew, len(refs))}
	for i, ref := range refs {
		ttl, ticket := wire.MillisOf(ref.TTL), wire.MillisOf(ref.TicketTTL)
		body.Leases[i] = wire.Renew{
			Key: ref.Key, LeaseID: ref.ID, TTL: &ttl, Ticket: &ticket, Notify: ref.HintAddress, Visit: ref.Visit,
			MinToken: wire.Whole(ref.Token), Level: ref.Level,
		}
	}
	var got wire.Renewed
	err := d.call(ctx, silenceOf(refs), http.MethodPost, "/leases:renew", &body, &got)
	if half := len(refs) / 2; half > 0 && tooLarge(err) {
		d.renew(ctx, refs[:half], each)
		d.renew(ctx, refs[half:], func(i int, got driver.Reply, err error) { each(half+i, got, err) })
		return
	}
	if err == nil && len(got.Leases) != len(refs) {
		err = fmt.Errorf("%d answers for %d leases: %w", len(got.Leases), len(refs), errAnswer)
	}
	for i := range refs {
		if err != nil {
			each(i, driver.Reply{}, ofBatch(err))
			continue
		}
		reply, err := renewal(&got.Leases[i], refs[i].Key, refs[i].ID)
		each(i, reply, err)
	}
}

// silenceOf returns after how much silence a renewal's connection is given up. The first
// try to renew a lease usually has a third of its TTL; later tries need another connection.
func silenceOf(refs []driver.Ref) time.Duration {
	silence := leastSilence
	for i := range refs {
		silence = min(silence, refs[i].TTL/4)
	}
	return silence
}

// ofBatch converts the problem of a whole batch for one lease: it was not renewed, but it is
// never lost because of that.
func ofBatch(err error) error {
	var p *problem
	if errors.As(err, &p) && !errors.Is(p.kind, driver.ErrUnavailable) {
		return &problem{Problem: p.Problem}
	}
	return err
}

// renewal returns the reply in one answer of a batch.
func renewal(r *wire.Renewal, key, id string) (driver.Reply, error) {
	if r.Problem != nil {
		p := &problem{Problem: *r.Problem}
		p.kind = kinds[p.cause()]
		return driver.Reply{}, p
	}
	return replyOf(&r.Lease, key, id)
}
