//go:build linux || darwin

package cli_test

import (
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/postgrestest"
)

func TestPostgres_DoctorSaysWhatIsMissing(t *testing.T) {
	live.Test(t)
	server := postgrestest.Start(t, "synchronous_commit=on", "fsync=on")
	if out, code := doctor(t, server.URL()); code != 1 || !strings.Contains(out, `CREATE TABLE IF NOT EXISTS "leasehold"`) {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := doctor(t, server.URL()+"&create=true"); code != 0 || !strings.Contains(out, "a waiter is woken") {
		t.Errorf("code %d: %s", code, out)
	}
	if out, code := doctor(t, server.URL(), server.URL()+"&table=other"); code != 1 || !strings.Contains(out, "one and the same server") {
		t.Errorf("code %d: %s", code, out)
	}
}
