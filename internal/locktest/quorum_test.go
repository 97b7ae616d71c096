package locktest_test

import (
	"regexp"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/memdriver"
	"github.com/leasehold-go/leasehold/quorumdriver"
)

// ofQuorum are the cases that ask for no more than a majority can keep: no places,
// and no order among those who wait.
var ofQuorum = regexp.MustCompile(`^(L|BreakBy|P2_|K[12356]_|K11_(Opposite|Key)|K12_Cancelled|(W3|W12)_.*/(mutex|reader|writer)$|Refusals_(OfAFree|OfDowngrades|EndNothing))`)

func TestQuorum(t *testing.T) {
	t.Parallel()
	var stores []*memdriver.Driver
	for range 3 {
		stores = append(stores, memdriver.New())
	}
	Run(t, Config{
		Only: ofQuorum.MatchString,
		Open: func(tb testing.TB) driver.Driver {
			var nodes []driver.Driver
			for _, s := range stores {
				nodes = append(nodes, s.Join())
			}
			q, err := quorumdriver.New(nodes)
			if err != nil {
				tb.Fatal(err)
			}
			return q
		},
	})
}
