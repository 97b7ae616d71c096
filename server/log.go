package server

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/oneline"
)

// LogRequests returns an observer that writes one record per request. Values that a client
// sends are cut to a maximum length. Bodies and credentials are never written.
func LogRequests(log *slog.Logger) Observer {
	return func(r *http.Request, x *Exchange) {
		level := levelOf(x)
		if !log.Enabled(r.Context(), level) {
			return
		}
		fields := append(make([]slog.Attr, 0, 12), // the most
			slog.String("method", oneline.Shorten(r.Method)),
			slog.String("operation", x.Operation()),
			slog.Int("status", x.Status),
			slog.Int64("bytes", x.Bytes),
			slog.Float64("ms", float64(time.Since(x.Started).Microseconds())/1000),
			slog.String("client", x.Client()),
			slog.String("trace", x.Trace),
		)
		optional := func(key, value string) {
			if value != "" {
				fields = append(fields, slog.String(key, oneline.Shorten(value)))
			}
		}
		optional("name", x.Name)
		optional("lease", x.LeaseID)
		if x.Route == nil {
			optional("path", r.URL.Path)
		}
		if x.Cause != nil {
			optional("cause", x.Cause.Name)
		}
		if x.Err != nil {
			optional("error", x.Err.Error())
		}
		log.LogAttrs(r.Context(), level, "request", fields...)
	}
}

// levelOf returns the level of a record: high if an operator may have to act, and low for
// probes, which come every second.
func levelOf(x *Exchange) slog.Level {
	switch {
	case x.Cause == Internal:
		return slog.LevelError
	case x.Status >= 500:
		return slog.LevelWarn
	case x.Route != nil && x.Route.Probe:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// traceOf returns the id of the trace in the traceparent header of a request, or else a new id.
func traceOf(h http.Header) string {
	if id, ok := parseTraceparent(h.Get("Traceparent")); ok {
		return id
	}
	var id [16]byte
	var text [2 * len(id)]byte
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64()) // unique, not secret
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	hex.Encode(text[:], id[:])
	return string(text[:])
}

// parseTraceparent returns the trace id of a header of W3C Trace Context. Later versions may
// have more fields after the first four.
func parseTraceparent(text string) (id string, ok bool) {
	if text == "" {
		return "", false
	}
	parts := strings.SplitN(text, "-", 5)
	if len(parts) < 4 || parts[0] == "ff" || len(parts) > 4 && parts[0] == "00" {
		return "", false
	}
	for i, size := range []int{2, 32, 16, 2} {
		if len(parts[i]) != size || strings.Trim(parts[i], "0123456789abcdef") != "" {
			return "", false
		}
	}
	if strings.Trim(parts[1], "0") == "" || strings.Trim(parts[2], "0") == "" {
		return "", false
	}
	return parts[1], true
}

// Tracer makes spans of requests, and of their calls of the store. It must be safe for
// concurrent use, and quick.
type Tracer interface {
	// Request begins the span of a request. ctx has it, and is derived from the
	// request's context. It may set x.Trace to the id of the span's trace, which
	// is the request's id then. When end is called, x has the answer's values.
	Request(r *http.Request, x *Exchange) (ctx context.Context, end func())
	// Store begins the span of one call of the store, whose verb is acquire,
	// renew or release. end is given its error.
	Store(ctx context.Context, verb string) (_ context.Context, end func(error))
}

// traced is a store whose three verbs make spans.
type traced struct {
	driver.Driver
	tracer Tracer
}

// Acquire implements [driver.Driver].
func (t traced) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	ctx, end := t.tracer.Store(ctx, "acquire")
	got, err := t.Driver.Acquire(ctx, req)
	end(err)
	return got, err
}

// Renew implements [driver.Driver].
func (t traced) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	ctx, end := t.tracer.Store(ctx, "renew")
	var failed error
	t.Driver.Renew(ctx, refs, func(i int, got driver.Reply, err error) {
		if err != nil {
			failed = err
		}
		each(i, got, err)
	})
	end(failed)
}

// Release implements [driver.Driver].
func (t traced) Release(ctx context.Context, ref driver.Ref) (driver.Reply, error) {
	ctx, end := t.tracer.Store(ctx, "release")
	got, err := t.Driver.Release(ctx, ref)
	end(err)
	return got, err
}
