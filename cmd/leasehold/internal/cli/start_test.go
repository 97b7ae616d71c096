//go:build linux || darwin

package cli_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestStart_TheGuardIsItselfBeforeTheClientsOfTheStores: the process of a guard does not leave
// the initialization of the guard's package, and packages initialized before it delay every
// command. Packages are initialized in the order of their names, but after all their imports,
// so that an import with a late name, such as os/exec, delays the guard.
func TestStart_TheGuardIsItselfBeforeTheClientsOfTheStores(t *testing.T) {
	cmd := exec.Command(command(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	trace, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, trace)
	}
	before, _, found := strings.Cut(string(trace), "\ninit github.com/leasehold-go/leasehold/cmd/leasehold/internal/proc @")
	if !found {
		t.Fatalf("the guard's package has no initialization:\n%s", trace)
	}
	for _, late := range []string{
		"net/http", "crypto/x509", "path/filepath", "golang.org/x/text/secure/precis", "google.golang.org/protobuf/internal/filedesc",
		"github.com/prometheus/client_golang/prometheus", "github.com/redis/rueidis", "github.com/jackc/pgx/v5/pgconn",
	} {
		if strings.Contains(before, "\ninit "+late+" @") {
			t.Errorf("%s is initialized before the guard begins", late)
		}
	}
}
