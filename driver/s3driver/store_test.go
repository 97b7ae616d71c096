package s3driver

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
)

func TestObject_NamesAreShortSafeAndDiffer(t *testing.T) {
	b := &bucket{options: options{prefix: strings.Repeat("p", 200)}}
	seen := make(map[string]bool)
	for _, key := range []string{
		"", "a", "A", "a/b", "a//b", ".", "..", "a ", "\x01mark", "ä", strings.Repeat("ä", 75), strings.Repeat("ä", 76),
		strings.Repeat("/", 540), strings.Repeat("a", 150), strings.Repeat("a", 151), strings.Repeat("a", 300), strings.Repeat("a", 301),
	} {
		object := b.object(key)
		if got, ok := b.key(object); !ok || got != key || seen[object] || len(object) > 1024 {
			t.Errorf("%q is %q (%d bytes), and that is %q, %t", key, object, len(object), got, ok)
		}
		seen[object] = true
		for part := range strings.SplitSeq(object, "/") {
			if part == "" || len(part) > 255 || !prefixForm.MatchString(part) {
				t.Errorf("%q has the part %q", key, part)
			}
		}
		for i := range len(key) + 1 {
			if !strings.HasPrefix(object, b.start(key[:i])) {
				t.Errorf("%q is not listed by its first %d bytes", key, i)
			}
		}
	}
	for _, foreign := range []string{"x", "/probe/ABC", "/YQ", "/YR.lock", "/YQ==.lock", "/Y/Q.lock", "/ä.lock", "/YQ.lock/"} {
		if key, ok := b.key(b.prefix + foreign); ok {
			t.Errorf("%q is taken for the record of %q", foreign, key)
		}
	}
}

// TestSweep_RemovesRecordsAnHourAfterTheirLastUse checks that sweeps leave no records, and read no
// younger ones.
func TestSweep_RemovesRecordsAnHourAfterTheirLastUse(t *testing.T) {
	s := fakes3.New()
	s.Hold()
	d := openAt(t, urlOf(t, s.Start(t, 0).URL, ""))
	l := later{table{roomdriver.FromSwapper(d.bucket), d.bucket}, s}
	for i := range 30 {
		req := requestOf("a")
		req.Key, req.TTL = fmt.Sprint("key ", i), 2*time.Hour
		acquire(t, d, req, driver.Granted)
		if i > 0 {
			release(t, d, req.Key, "a")
		}
	}
	s.Log()
	if n, err := l.table.Sweep(t.Context(), 1000); n != 0 || err != nil {
		t.Errorf("at once: %d, %v", n, err)
	}
	if reads := count(s.Log(), "GET"); reads != 1 {
		t.Errorf("%d requests for records in use", reads)
	}
	s.Advance(step) // tokens are ahead of the clock, by their number
	if n, err := l.Sweep(t.Context(), 1000); n != 29 || err != nil {
		t.Errorf("after an hour: %d, %v", n, err)
	}
	if n, err := l.Sweep(t.Context(), 1000); n != 0 || err != nil {
		t.Errorf("while one lock is held: %d, %v", n, err)
	}
	if n, err := l.Sweep(t.Context(), 1000); n != 1 || err != nil {
		t.Errorf("when it has expired: %d, %v", n, err)
	}
	if keys := s.Keys(); len(keys) > 0 {
		t.Errorf("left %q", keys)
	}
}

// TestQueue_OfAThousandFitsIntoARecord checks the size of a record, and that 50 callers at once are served.
func TestQueue_OfAThousandFitsIntoARecord(t *testing.T) {
	s := fakes3.New()
	front := s.Start(t, 0)
	var all sync.WaitGroup
	const processes, callers = 5, 200
	for p := range processes {
		d := openAt(t, urlOf(t, front.URL, ""))
		for c := range callers {
			all.Go(func() {
				req := requestOf(fmt.Sprintf("%d-%d", p, c))
				req.TicketTTL = time.Minute
				for range 100 {
					_, err := d.Acquire(t.Context(), req)
					if err == nil {
						return
					}
				}
				t.Errorf("%s was not served", req.ID)
			})
		}
	}
	all.Wait()
	snap, err := openAt(t, urlOf(t, front.URL, "")).Inspect(t.Context(), "orders/42")
	if err != nil || len(snap.Holders) != 1 || len(snap.Waiters) != processes*callers-1 {
		t.Errorf("%d holders, %d waiters, %v", len(snap.Holders), len(snap.Waiters), err)
	}
	if size := s.Size(); size > 200<<10 {
		t.Errorf("the record has %d bytes", size)
	}
}

// TestPing_TakesALock checks that a client and a service can look whether the store works.
func TestPing_TakesALock(t *testing.T) {
	client, err := leasehold.New(openAt(t, urlOf(t, fakes3.New().Start(t, 0).URL, "")))
	noError(t, err)
	defer client.Close()
	noError(t, client.Ping(t.Context()))
}
