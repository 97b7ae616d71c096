package etcddriver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasehold-go/leasehold/driver"
)

func TestOpen_RefusesAtOnceAndShowsNoPassword(t *testing.T) {
	for url, want := range map[string]string{
		"etcd://u:secret@":               "host",
		"etcd://u:secret@h1,,h2":         "",
		"etcd://u:secret/x@h":            "percent-encode",
		"http://u:secret@h":              "etcd://",
		"etcd://u:secret@h?timeout=1ms":  "between 100ms",
		"etcd://u:secret@h?nonsense=1":   "nonsense",
		"etcd://u:secret@h?ca=/x":        "go with etcds",
		"etcds://u:secret@h?ca=/nothing": "/nothing",
		"etcd://secret@h":                "go together",
		"etcd://h#secret":                "",
	} {
		_, err := Open(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := New(nil); !errors.Is(err, driver.ErrInvalid) {
		t.Error(err)
	}
}

func TestParse_ReadsHostsPrefixAndCredentials(t *testing.T) {
	cfg, opts, err := parse("etcds://me:p%40ss@h1,[::1]:7/locks?timeout=3s")
	noError(t, err)
	o, err := newOptions(opts)
	if err != nil || o.prefix != "locks/" || o.timeout != 3*time.Second {
		t.Errorf("%+v, %v", o, err)
	}
	got := strings.Join(cfg.Endpoints, " ")
	if got != "https://h1:2379 https://[::1]:7" || cfg.Username != "me" || cfg.Password != "p@ss" || cfg.TLS == nil {
		t.Errorf("%s %s %s", got, cfg.Username, cfg.Password)
	}
}

func TestErrors_OnlyRefusalsAreDefinite(t *testing.T) {
	for _, err := range []error{rpctypes.ErrRequestTooLarge, rpctypes.ErrNoLeader, rpctypes.ErrPermissionDenied} {
		if !definite(err) || !errors.Is(unavailable(explain(err)), driver.ErrUnavailable) || len(explain(err).Error()) < 60 {
			t.Errorf("%v", unavailable(explain(err)))
		}
	}
	for _, err := range []error{
		rpctypes.ErrNoSpace, rpctypes.ErrTimeout, rpctypes.ErrTimeoutDueToLeaderFail, rpctypes.ErrTimeoutDueToConnectionLost,
		rpctypes.ErrLeaderChanged, rpctypes.ErrStopped,
		status.Error(codes.Unavailable, "the connection is lost"), status.Error(codes.Canceled, "canceled"),
	} {
		if definite(err) {
			t.Errorf("%v is definite", err)
		}
	}
	if err := unavailable(explain(rpctypes.ErrAuthFailed)); !errors.Is(err, driver.ErrPermanent) {
		t.Error(err)
	}
}
