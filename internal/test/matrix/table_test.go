package matrix_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

// local are entries that send no request to a store, or only by methods of their results.
var local = map[string]string{
	"New": "sends no request", "FromContext": "", "MultiFromContext": "", "ObserveWait": "its function is called by Lock",
	"Client.Mutex": "", "Client.RWMutex": "", "Client.Semaphore": "", "Client.Election": "", "Client.Stats": "", "RWMutex.RLocker": "", "Semaphore.Places": "",
	"Lease.Context": "compares the clock", "Lease.Key": "", "Lease.Owner": "", "Lease.ID": "", "Lease.Token": "", "Lease.Places": "", "Lease.Wanted": "its renewals ask", "Lease.State": "compares the clock", "Lease.Deadline": "", "Lease.Remaining": "",
	"MultiLease.Context": "compares the clock", "MultiLease.Parts": "", "MultiLease.Tokens": "", "MultiLease.State": "", "MultiLease.Deadline": "", "MultiLease.Remaining": "",
	"State.Live": "", "LockInfo.Kind": "", "AcquiredInfo.Outcome": "", "RenewedInfo.Outcome": "", "EndedInfo.Lost": "", "EndedInfo.Reason": "", "ReleasedInfo.Outcome": "",
	"Alongside": "", "Constant": "", "Linear": "", "Exponential": "", "Backoff.Delay": "",
}

// resources are the entries of package fence, and postgresdriver.Pin, which are called by a
// resource and not by a holder, with the tests of their behaviour under faults.
var resources = map[string][]string{
	"fence.SQL.Do":       {"TestPostgres_UnderFaults", "TestPostgres_HR_F3_GreatestOfTwoFirstClaimsIsNotRefused", "TestSQL_HR_F3_StepsOfATransaction"},
	"fence.SQL.Raise":    {"TestPostgres_UnderFaults", "TestPostgres_HR_F3_SerializationFailuresAreToBeRepeated"},
	"fence.SQL.Create":   {"TestSQL_HR_F4_TableThatTakesDifferentNamesForOneIsRefused"},
	"fence.Redis.Do":     {"TestRedis_UnderFaults", "TestRedis_ForeignDataAtTheFenceIsAnError", "TestRedis_RepliesOfAnyClient"},
	"fence.SQL.Schema":   nil,
	"fence.Dollar":       nil,
	"fence.Of":           nil,
	"postgresdriver.Pin": {"TestPin_WhoeverIsLateChangesNothing", "TestPin_KeepsTheLockAfterTheEndOfTheLease"},
}

// elsewhere are the tests of faults that are impossible in a bubble, and of faults that need a
// certain kind of server.
var elsewhere = map[string][]string{
	"store forgets":        {"TestExplore_CallsOfADriver", "TestChaos_OnAServerThatForgets", "TestChaos_OnAQuorum"},
	"store comes back old": {"TestTokens_P4_RiseOnAServerThatComesBackWithOldData"},
	"failover":             {"TestChaos_OnASentinel", "TestChaos_OnACluster"},
	"starved":              {"TestCommands_HR_G3_BurstOfWaitersAsksOnceEach", "TestMicroscope_ScriptsAreTheRuleAndFailNowhereInTheirMiddle", "TestChaos_OnOneServer"},
	"proxy answers":        {"TestClients_HR_C5_BelieveOnlyTheService"},
	"process stopped": {
		"TestLease_LookAfterAStoppedProcessSaysLostBeforeAnyTimer", "TestLease_StoppedProcessEndsTheContextAtTheNextRenewal",
		"TestRun_P2_StoppedWrapperDoesNotKeepTheCommandAlive", "TestChaos_OnOneServer", "TestChaos_OnTheService",
	},
}

// declared matches an exported function, or a method of an exported type.
var declared = regexp.MustCompile(`(?m)^func (?:\(\w* ?\*?([A-Z]\w*)\) )?([A-Z]\w*)[\[(]`)

// exported returns the functions and methods of a package, except its options and those that package fmt
// or errors calls.
func exported(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../..", dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			switch of, name := m[1], m[2]; {
			case of == "" && strings.HasPrefix(name, "With"), slices.Contains([]string{"Error", "Unwrap", "String", "Is"}, name):
			default:
				all = append(all, strings.TrimPrefix(of+"."+name, "."))
			}
		}
	}
	return all
}

// TestMatrix_HasARowForEveryEntry compares the table with the library and the routes.
func TestMatrix_HasARowForEveryEntry(t *testing.T) {
	rows := make(map[string]bool)
	for _, s := range settings() {
		for _, e := range s.entries {
			for _, of := range e.of {
				rows[of] = true
			}
		}
	}
	for _, e := range exported(t, "fence") {
		if _, ok := resources["fence."+e]; !ok {
			t.Errorf("fence.%s has no row", e)
		}
	}
	entries := exported(t, ".")
	if len(entries) < 60 {
		t.Fatalf("%d entries were found", len(entries))
	}
	for _, e := range entries {
		if _, ok := local[e]; ok == rows[e] {
			t.Errorf("%s has a row: %t, asks no store: %t", e, rows[e], ok)
		}
	}
	for e := range local {
		if !slices.Contains(entries, e) {
			t.Errorf("there is no %s", e)
		}
	}
	s, err := server.New(memdriver.New(), server.WithPage(server.PageFull))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, r := range s.Routes() {
		if name := r.Method + " " + r.Path; !rows[name] && r.Operation != "page" && !strings.HasPrefix(r.Operation, "page.") {
			t.Errorf("%s has no row", name)
		}
	}
	for _, f := range faults {
		if len(f.plays) == 0 && len(elsewhere[f.name]) == 0 {
			t.Errorf("%s is not tried", f.name)
		}
	}
}
