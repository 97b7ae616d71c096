package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/internal/overview"
)

// fill puts n locks into a store.
func fill(t *testing.T, store driver.Driver, n int, format string) {
	t.Helper()
	for i := range n {
		if _, err := store.Acquire(t.Context(), driver.Request{Key: fmt.Sprintf(format, i), ID: "a", TTL: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOverview_TellsNoNameThatTheReaderMayNotKnow(t *testing.T) {
	file, _ := openAuth(t, roles())
	store := memdriver.New()
	_, base := serve(t, store, server.WithPage(server.PageFull), server.WithAuthenticator(file))
	fill(t, store, 6000, "secret/%04d")
	for _, cursor := range []string{"at=secret%2F0001", "secret/0001", ""} {
		var v overview.View
		_, text := spokenAs(t, "desk", "GET", base+"/v1/overview?prefix=s&cursor="+url.QueryEscape(cursor), "")
		if strings.Contains(text, "secret") || !strings.Contains(text, `"rows":[]`) {
			t.Fatalf("%q: %.300s", cursor, text)
		}
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if opened, err := base64.RawURLEncoding.DecodeString(v.Cursor); err != nil || strings.Contains(string(opened), "secret") {
			t.Fatalf("%q, %v", opened, err)
		}
		if cursor == "" && v.Cursor == "" {
			t.Error("all names were read for one view")
		}
	}
}

func TestOverview_OneClientLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, _ := openAuth(t, roles())
		store := memdriver.New()
		_, base := serve(t, store, server.WithPage(server.PageFull), server.WithAuthenticator(file))
		fill(t, store, 3, "orders/%d")
		ctx, stop := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		var refused atomic.Int64
		for i := range 50 {
			crowd.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					if code, header := askAs(t, "shop", "GET", fmt.Sprintf("%s/v1/overview?prefix=%d-%d", base, i, n), ""); code == http.StatusTooManyRequests && header.Get("Retry-After") != "" {
						refused.Add(1)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		for range 3 {
			code, text := spokenAs(t, "admin", "GET", base+"/v1/overview", "")
			if code != 200 || strings.Count(text, `"looked":true`) != 3 {
				t.Errorf("%d %s", code, text)
			}
		}
		stop()
		crowd.Wait()
		if refused.Load() == 0 {
			t.Error("no request was refused")
		}
	})
}

// littered is a store in which some keys hold no lock, and some make its code fail.
type littered struct{ *memdriver.Driver }

func (l littered) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	switch {
	case strings.HasPrefix(key, "bad"):
		return driver.Snapshot{}, fmt.Errorf("%w: a list", driver.ErrMismatch)
	case strings.HasPrefix(key, "worse"):
		panic("defect")
	}
	return l.Driver.Inspect(ctx, key)
}

func TestOverview_ARecordThatCannotBeReadIsToldApart(t *testing.T) {
	store := littered{memdriver.New()}
	_, base := serve(t, store, server.WithPage(server.PageFull))
	for _, format := range []string{"bad%d", "worse%d", "zgood%d"} {
		fill(t, store, 1, format)
	}
	var v overview.View
	answer(t, "GET", base+"/v1/overview", "", 200, &v)
	if len(v.Rows) != 3 || v.Rows[0].Problem == "" || v.Rows[0].Ago != 0 || v.Rows[1].Problem == "" || !v.Rows[2].Looked || v.Rows[0].Failed {
		t.Errorf("%+v", v)
	}
	for name, cause := range map[string]*server.Cause{"bad0": server.Mismatch, "worse0": server.Internal} {
		code, text := ask(t, "GET", base+"/v1/overview/lock?name="+name, "")
		refused(t, name, code, text, cause)
	}
}

func TestOverview_AnswersWithinTwoSecondsAndEndsWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan struct{}, 10)
		s, base := serve(t, &hooked{memdriver.New(), func(ctx context.Context, verb, _ string) error {
			if verb == "list" || verb == "inspect" || verb == "glance" {
				entered <- struct{}{}
				<-ctx.Done()
				entered <- struct{}{}
				return errors.New("too late")
			}
			return nil
		}}, server.WithPage(server.PageFull), server.WithStoreTimeout(3*time.Second))
		begin := time.Now()
		code, text := ask(t, "GET", base+"/v1/overview", "")
		refused(t, "list", code, text, server.Unavailable)
		if took := time.Since(begin); took > 2900*time.Millisecond {
			t.Error(took)
		}
		if s.Close(); len(entered) != 2 {
			t.Error("the request to the store goes on")
		}
	})
}

func TestOverview_IsRefusedForTooManyRequestsAndAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, base := serve(t, &hooked{memdriver.New(), mute("inspect", "glance", "list")}, server.WithPage(server.PageFull))
		var waiting sync.WaitGroup
		for range 4 {
			waiting.Go(func() { ask(t, "GET", base+"/v1/overview", "") })
		}
		synctest.Wait()
		for _, rt := range overviews(s) {
			code, text := ask(t, "GET", base+aim(rt, "k", "a"), "")
			refused(t, rt.Operation, code, text, server.TooMany)
		}
		waiting.Wait()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for _, path := range []string{"/v1/overview?prefix=k", "/v1/overview/lock?name=k"} {
			code, text := ask(t, "GET", base+path, "")
			refused(t, path, code, text, server.Draining)
		}
	})
}

func TestOverview_NamesOfLocksAreNoPaths(t *testing.T) {
	store := memdriver.New()
	_, base := serve(t, store, server.WithPage(server.PageFull))
	for _, name := range []string{".", "..", "a/../b", "a//b", "/", "a%2Fb", "é", "a?b#c&d"} {
		fill(t, store, 1, strings.ReplaceAll(name, "%", "%%")+"%.0d") // writes no 0
		var one server.One
		if answer(t, "GET", base+"/v1/overview/lock?name="+url.QueryEscape(name), "", 200, &one); one.Key != name || one.Held != 1 {
			t.Errorf("%q: %+v", name, one)
		}
	}
}
