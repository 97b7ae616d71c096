package api_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/internal/api"
)

func TestFields_DescribeNothingThatDoesNotExist(t *testing.T) {
	s, err := server.New(memdriver.New(), server.WithPage(server.PageFull))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, stale := range api.StaleFields(s.Routes()) {
		t.Errorf("%s is described and does not exist", stale)
	}
}
