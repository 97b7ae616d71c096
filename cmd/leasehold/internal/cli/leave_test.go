package cli

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

func TestServe_IsNotReadyForTheDelayBeforeItDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := server.New(memdriver.New())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		status := func(method, path string) int {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
			return w.Code
		}
		const delay = 7 * time.Second
		began, left := time.Now(), make(chan error)
		go func() { left <- (&serveFlags{delay: duration(delay)}).leave(s, nil) }()
		time.Sleep(delay - time.Second)
		if ready, served := status("GET", "/readyz"), status("POST", "/v1/locks/k"); ready != 503 || served != 201 {
			t.Errorf("/readyz is %d, a lock is %d", ready, served)
		}
		if err := <-left; err != nil || time.Since(began) != delay {
			t.Errorf("it drains after %v, %v", time.Since(began), err)
		}
	})
}
