package server

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/leasehold-go/leasehold/internal/oneline"
)

// LogRequests returns an observer that writes one record per request. Fields
// are bounded in length: what a client sends is cut. Nothing of a body, nor
// credentials, is written.
func LogRequests(log *slog.Logger) Observer {
	return func(r *http.Request, x *Exchange) {
		level := levelOf(x)
		if !log.Enabled(r.Context(), level) {
			return
		}
		fields := append(make([]slog.Attr, 0, maxFields),
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

// maxFields is how many a record has at most.
const maxFields = 12

// levelOf is loud where an operator may have to act, and quiet where probes
// knock every second.
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
