package roomdriver_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// mute is a table that fails to read each record.
type mute struct {
	swapping
	err error
}

func (m mute) Load(context.Context, string) (record []byte, version string, now time.Time, err error) {
	return nil, "", time.Time{}, m.err
}

// A record that cannot be read is certainly unchanged. The error is not wrapped twice.
func TestFromSwapper_AFailedLoadIsUnavailable(t *testing.T) {
	for _, err := range []error{errors.New("away"), driver.ErrUnavailable, driver.ErrPermanent} {
		got := roomdriver.FromSwapper(mute{err: err}).Update(t.Context(), "k", nil)
		if !errors.Is(got, err) || !errors.Is(got, driver.ErrUnavailable) || strings.Count(got.Error(), driver.ErrUnavailable.Error()) != 1 {
			t.Errorf("%v: %v", err, got)
		}
	}
}
