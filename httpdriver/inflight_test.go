package httpdriver_test

import (
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/wire"
)

// A request that the service's store did not answer may lock again after the release,
// also if the one before it has had its effect: whoever releases has to know it.
func TestAcquire_TellsOfWhatTheServiceHasOnItsWay(t *testing.T) {
	d := answering(t, &canned{200, "application/json", []byte(`{"leaseId":"a","state":"` + wire.StateName(driver.Granted) + `","token":7,"holds":1,"again":true,"repeated":true}`)})
	reply, err := d.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Second})
	if err != nil || !reply.InFlight {
		t.Errorf("%+v, %v", reply, err)
	}
}
