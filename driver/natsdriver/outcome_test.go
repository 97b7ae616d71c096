package natsdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/ask"
	"github.com/leasehold-go/leasehold/internal/test/tcpproxy"
)

// Texts of requests and answers.
const (
	look  = "STREAM.MSG.GET"
	write = "HPUB $KV."
	ack   = `"seq":` // in the answer to a write
)

func through(p *tcpproxy.Proxy) string { return "nats://" + p.Addr() }

// newStoreBehind returns a store behind a proxy, and one that reaches the server itself.
func newStoreBehind(t *testing.T, params string) (d, direct *Driver, p *tcpproxy.Proxy) {
	t.Helper()
	url, bucket := one()
	p = tcpproxy.Start(t, shared().addr)
	direct = warm(t, openURL(t, url+"/"+bucket+"?create=true"))
	return warm(t, openURL(t, through(p)+"/"+bucket+params)), direct, p
}

func TestCuts_ErrorsReportAPossibleEffect(t *testing.T) {
	d, direct, p := newStoreBehind(t, "")
	before := func(text string) func() *tcpproxy.Cut { return func() *tcpproxy.Cut { return p.CutBefore(text) } }
	after := func() *tcpproxy.Cut { return p.CutAnswer(write, ack) }
	ask.Cuts{Look: before(look), Make: before(write), Made: after, Released: after, Ready: func() { warm(t, d) }}.Play(t, d, direct)
}

// A write is late: its caller has given up, and another client holds the lock.
func TestAcquire_ALateWriteHasNoEffectAfterAnother(t *testing.T) {
	for _, first := range []bool{false, true} { // whether the record exists before
		d, direct, p := newStoreBehind(t, "")
		if first {
			acquire(t, direct, mutex("k", "0"), driver.Granted)
			release(t, direct, "k", "0")
		}
		cut := p.Hold(write)
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := d.Acquire(ctx, mutex("k", "late"))
			failed <- err
		}()
		<-cut.Fired()
		cancel()
		if err := <-failed; err == nil || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%v; the outcome is unknown", err)
		}
		acquire(t, direct, mutex("k", "b"), driver.Granted)
		cut.Let()
		warm(t, d) // by the same connection, so the late write has arrived before
		if !holds(t, direct, "k", "b") {
			t.Error("the late write has an effect")
		}
	}
}

func TestNew_AConnectionThatIsAwayBuffersNoRequests(t *testing.T) {
	url, bucket := one()
	direct := warm(t, openURL(t, url+"/"+bucket+"?create=true"))
	p := tcpproxy.Start(t, shared().addr)
	nc, err := nats.Connect(through(p), nats.MaxReconnects(-1), nats.ReconnectWait(time.Hour))
	noError(t, err)
	defer nc.Close()
	d, err := New(nc, WithBucket(bucket), WithTimeout(20*time.Second))
	noError(t, err)
	defer d.Close()
	acquire(t, d, mutex("k", "a"), driver.Granted)
	p.CutAll()
	eventually(t, func() bool { return nc.Status() == nats.RECONNECTING })
	if _, err := d.Acquire(t.Context(), mutex("other", "a")); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("%v", err)
	}
	if n, _ := nc.Buffered(); n > 0 {
		t.Errorf("%d bytes are buffered", n)
	}
	if !holds(t, direct, "k", "a") {
		t.Error("the lease is gone")
	}
	nc.Close()
	if _, err = d.Acquire(t.Context(), mutex("other", "a")); !errors.Is(err, driver.ErrPermanent) {
		t.Errorf("%v", err)
	}
}

// A write that blocks holds the connection's lock. The write ends, and the next call
// has another connection.
func TestSwap_AWriteThatBlocksEndsTheConnection(t *testing.T) {
	d, _, p := newStoreBehind(t, "?timeout=1s")
	p.Strand()
	begin := time.Now()
	for i := range 24 { // more than the buffers between here and the proxy
		go func() {
			_, _ = d.table.Swap(t.Context(), fmt.Sprint("large", i), "0 0", append([]byte{1}, make([]byte, 900_000)...))
		}()
	}
	warm(t, d)
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
}

func TestListen_AnnouncesTheAddress(t *testing.T) {
	d := newStore(t)
	subs, addresses := make(chan driver.Subscription, 1), make(chan string, 1)
	sub, err := d.table.Listen(func(string) { addresses <- (<-subs).Address() })
	noError(t, err)
	subs <- sub
	if <-addresses == "" {
		t.Error("there is no address")
	}
	noError(t, sub.Close())
}

func TestAcquire_ARecordThatIsTooLargeIsRefusedByItsReason(t *testing.T) {
	s := start(t, "max_payload: 8KB")
	d := warm(t, openURL(t, s.url()+"?create=true"))
	acquire(t, d, mutex("k", "a"), driver.Granted)
	var err error
	for i := 0; err == nil; i++ {
		_, err = d.Acquire(t.Context(), ticket("k", strings.Repeat("x", 20)+string(rune('a'+i/26))+string(rune('a'+i%26))))
		if i > 500 {
			t.Fatal("there is no limit")
		}
	}
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "raise max_payload") {
		t.Errorf("%v", err)
	}
	release(t, d, "k", "a")
}
