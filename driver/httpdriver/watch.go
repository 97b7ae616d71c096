package httpdriver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/timing"
	"github.com/leasehold-go/leasehold/internal/wire"
)

const (
	// silence is how long a stream may be silent before it is given up: the service
	// sends something every 5 s.
	silence = 15 * time.Second
	// minPause and maxPause bound the pause before a lost stream is opened again.
	// Without a stream, waiters poll.
	minPause = 50 * time.Millisecond
	maxPause = 5 * time.Second
	// maxEvent bounds one event, in bytes, and each of its lines.
	maxEvent = 1 << 20
	// streamMedia is the media type of a stream.
	streamMedia = "text/event-stream"
)

// subscription is a stream of events.
type subscription struct {
	d      *Driver
	f      func(driver.Hint)
	cancel context.CancelFunc
	done   chan struct{} // closed after the last call of f

	address atomic.Pointer[string]
}

// Watch implements [driver.Watcher]. It does not wait for the stream: the address is
// empty until there is one.
func (d *Driver) Watch(f func(driver.Hint)) (driver.Subscription, error) {
	if d.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	s := &subscription{d: d, f: f, done: make(chan struct{})}
	s.address.Store(new(string))
	ctx, cancel := context.WithCancel(d.ctx)
	s.cancel = cancel
	d.work.Go(func() { s.run(ctx) })
	return s, nil
}

// Address implements [driver.Subscription].
func (s *subscription) Address() string { return *s.address.Load() }

// Close implements [driver.Subscription].
func (s *subscription) Close() error {
	s.cancel()
	<-s.done
	return nil
}

// run keeps a stream open until ctx ends.
func (s *subscription) run(ctx context.Context) {
	defer close(s.done)
	pause := minPause
	for ctx.Err() == nil {
		began := time.Now()
		_ = s.stream(ctx) // why it ended does not matter: it is opened again
		s.address.Store(new(string))
		if time.Since(began) > maxPause {
			pause = minPause
		}
		timing.Sleep(ctx, pause)
		pause = min(2*pause, maxPause)
	}
}

// stream reads one stream to its end.
func (s *subscription) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	alive := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer alive.Stop()
	req, err := s.d.request(ctx, http.MethodGet, "/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", streamMedia)
	client := s.d.client.Load()
	defer s.d.finished(client)
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); res.StatusCode != http.StatusOK || media != streamMedia {
		text, _ := io.ReadAll(io.LimitReader(res.Body, maxEvent))
		return problemOf(res, text)
	}
	return s.read(res.Body, func() { alive.Reset(silence) })
}

var (
	errSilent = errors.New("the stream has gone silent")
	errLong   = errors.New("an event of the stream is too long")
)

// read reads the events of a stream. alive is called for each line.
func (s *subscription) read(r io.Reader, alive func()) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxEvent)
	var name string
	var data []byte
	for lines.Scan() {
		alive()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			name = value
		case "data":
			if len(data)+len(value) > maxEvent {
				return errLong
			}
			data = append(data, value...)
		case "":
			if name != "" && value == "" {
				if err := s.event(name, data); err != nil {
					return err
				}
				name, data = "", data[:0]
			}
		}
	}
	return lines.Err()
}

// event handles one event.
func (s *subscription) event(name string, data []byte) error {
	if name == wire.EventReady {
		var ready wire.Ready
		if err := json.Unmarshal(data, &ready); err != nil {
			return fmt.Errorf("%w: %w", errAnswer, err)
		}
		s.address.Store(&ready.Address)
		s.f(driver.Hint{Kind: driver.HintResync})
		return nil
	}
	var h wire.Hint
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	if hint, ok := h.Hint(name); ok {
		s.f(hint)
	}
	return nil
}
