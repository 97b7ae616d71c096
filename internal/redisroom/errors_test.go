package redisroom

import (
	"errors"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
)

// TestRefusal_OfACommandInAScriptIsPermanent: Redis and Valkey have different errors for a script
// that calls an unknown command.
func TestRefusal_OfACommandInAScriptIsPermanent(t *testing.T) {
	for _, text := range []string{
		"ERR Unknown Redis command called from script script: 0123, on @user_script:3.",
		"ERR Unknown command called from script script: 0123, on @user_script:3.",
	} {
		if err := refusal(ReplyError(text)); !errors.Is(err, driver.ErrPermanent) {
			t.Errorf("%v", err)
		}
	}
}
