package s3driver

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/test/play"
)

// trouble makes a sixth of the requests about records fail in every way, and late requests arrive.
func trouble(s *fakes3.Server) func(*http.Request) fakes3.Fault {
	faults := []fakes3.Fault{fakes3.Cut, fakes3.Lose, fakes3.SlowDown, fakes3.Failed, fakes3.Conflict, fakes3.Late}
	return func(r *http.Request) fakes3.Fault {
		if rand.IntN(20) == 0 {
			go s.Arrive()
		}
		if rand.IntN(6) == 0 && (isRecord(r, http.MethodGet) || isRecord(r, http.MethodPut) || isRecord(r, http.MethodDelete)) {
			return faults[rand.IntN(len(faults))]
		}
		return fakes3.Answered
	}
}

// TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote plays several processes while requests and
// answers are lost.
func TestUpdate_OfTwoUpdatesTheLaterReadsWhatTheEarlierWrote(t *testing.T) {
	for name, lacks := range map[string]fakes3.Lacks{"full": fakes3.Complete, "no conditional deletes": fakes3.ConditionalDeletes} {
		t.Run(name, func(t *testing.T) {
			s := fakes3.New()
			s.Lack(lacks)
			var tables []roomdriver.Table
			for range 4 {
				b := warm(t, openAt(t, urlOf(t, s.Start(t, 0).URL, "&timeout=500ms"))).bucket
				tables = append(tables, roomdriver.FromSwapper(b))
			}
			c := play.StartChain(t, tables...)
			s.Inject(trouble(s))
			c.Await(400, 40)
			c.Judge()
		})
	}
}

// TestClients_KeepThePromisesDuringFaults plays clients of several servers with different clocks, while
// requests and answers are lost, and while all servers are silent for a second.
func TestClients_KeepThePromisesDuringFaults(t *testing.T) {
	s := fakes3.New()
	var stores []driver.Driver
	for i := range 5 {
		stores = append(stores, warm(t, openAt(t, urlOf(t, s.Start(t, time.Duration(i)*skew/5).URL, "&timeout=300ms"))))
	}
	locks := play.Start(t, MinTTL, 0, stores...)
	locks.Fault("trouble", func() {
		s.Inject(trouble(s))
		locks.Await(20)
		s.Inject(func(*http.Request) fakes3.Fault { return fakes3.Hang })
		time.Sleep(time.Second) // every request hangs for as long
		s.Inject(trouble(s))
		locks.Await(20)
		s.Inject(nil)
	})
	locks.Await(10)
	locks.Judge()
}
