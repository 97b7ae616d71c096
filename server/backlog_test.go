package server

import (
	"encoding/json"
	"testing"

	"github.com/leasehold-go/leasehold/internal/wire"
)

// A lock with many holders has large states, of which a slow client must not pile up thousands.
func TestStream_KeepsABoundedSizeOfEvents(t *testing.T) {
	f := &stream{more: make(chan struct{}, 1), first: 1}
	const n, large = 3000, 1 << 20
	for range n {
		f.push(event{wire.EventLock, json.RawMessage(make([]byte, large))})
	}
	events, first := f.pull(0)
	if len(events) != backlogBytes/large || int(first)+len(events) != n+1 {
		t.Errorf("%d events from number %d on are kept", len(events), first)
	}
	f.push(event{wire.EventLock, json.RawMessage(make([]byte, 2*backlogBytes))})
	f.push(event{wire.EventReady, nil})
	if events, first = f.pull(n + 1); len(events) != 1 || events[0].name != wire.EventReady || first != n+2 {
		t.Errorf("behind a state that is too large: %d events from number %d on", len(events), first)
	}
	if kept := cap(f.log); f.bytes != 0 || kept > backlog {
		t.Errorf("%d bytes are counted, %d events have room", f.bytes, kept)
	}
}
