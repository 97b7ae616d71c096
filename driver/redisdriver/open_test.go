package redisdriver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/redisdriver"
)

func TestOpen_OptionsCountMoreThanTheURL(t *testing.T) {
	d, err := redisdriver.Open("redis://localhost:1?timeout=3s", redisdriver.WithTimeout(4*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if limit := d.CallTimeout(); limit != 4*time.Second {
		t.Errorf("calls end after %v, want 4s", limit)
	}
	if _, err := redisdriver.Open("redis://localhost:1", redisdriver.WithTimeout(time.Hour)); !errors.Is(err, driver.ErrInvalid) {
		t.Errorf("a timeout of an hour: %v, want it refused", err)
	}
}
