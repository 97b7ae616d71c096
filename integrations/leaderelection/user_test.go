package leaderelection_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/usertest"
)

func TestReadme_ItsProgramWorksInAModuleOfItsOwn(t *testing.T) {
	usertest.Run(t, 2, "leads until it is interrupted")
}
