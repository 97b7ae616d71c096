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
	"github.com/leasehold-go/leasehold/internal/test/intercept"
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
		text := askAs(t, "desk", "GET", base+"/v1/overview?prefix=s&cursor="+url.QueryEscape(cursor), "").body
		if strings.Contains(text, "secret") || !strings.Contains(text, `"rows":[]`) {
			t.Fatalf("%q: %.300s", cursor, text)
		}
		noErr(t, json.Unmarshal([]byte(text), &v))
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
					got := askAs(t, "shop", "GET", fmt.Sprintf("%s/v1/overview?prefix=%d-%d", base, i, n), "")
					if got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") != "" {
						refused.Add(1)
					}
					time.Sleep(50 * time.Millisecond)
				}
			})
		}
		time.Sleep(time.Second)
		for range 3 {
			text := answered(t, 200, askAs(t, "admin", "GET", base+"/v1/overview", ""))
			if strings.Count(text, `"looked":true`) != 3 {
				t.Error(text)
			}
		}
		stop()
		crowd.Wait()
		if refused.Load() == 0 {
			t.Error("no request was refused")
		}
	})
}

func TestOverview_AnswersWithinTwoSecondsAndEndsWithTheService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		entered := make(chan struct{}, 10)
		s, base := serve(t, before(memdriver.New(), func(ctx context.Context, m *message) error {
			if m.Verb == intercept.List || m.Verb == intercept.Inspect {
				entered <- struct{}{}
				<-ctx.Done()
				entered <- struct{}{}
				return errors.New("too late")
			}
			return nil
		}), server.WithPage(server.PageFull), server.WithStoreTimeout(3*time.Second))
		begin := time.Now()
		refused(t, ask(t, "GET", base+"/v1/overview", ""), server.Unavailable)
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
		s, base := serve(t, mute(intercept.Inspect, intercept.List), server.WithPage(server.PageFull))
		var waiting sync.WaitGroup
		for range 4 {
			waiting.Go(func() { ask(t, "GET", base+"/v1/overview", "") })
		}
		synctest.Wait()
		for _, rt := range overviews(s) {
			refused(t, try(t, base, rt), server.TooMany)
		}
		waiting.Wait()
		noErr(t, s.Close())
		for _, path := range []string{"/v1/overview?prefix=k", "/v1/overview/lock?name=k"} {
			refused(t, ask(t, "GET", base+path, ""), server.Draining)
		}
	})
}
