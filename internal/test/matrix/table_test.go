package matrix_test

import (
	"cmp"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
)

var show = flag.Bool("matrix.table", false, "print the table of entries and faults")

const root = "../../.."

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
	"store forgets":        {"TestExplore_OrdersOfMessages", "TestChaos_OnAServerThatForgets", "TestChaos_OnAQuorum"},
	"store comes back old": {"TestTokens_P4_RiseOnAServerThatComesBackWithOldData"},
	"failover":             {"TestChaos_OnASentinel", "TestChaos_OnACluster"},
	"starved":              {"TestCommands_HR_G3_BurstOfWaitersAsksOnceEach", "TestMicroscope_ScriptsAreTheRuleAndFailNowhereInTheirMiddle", "TestChaos_OnOneServer"},
	"proxy answers":        {"TestClients_HR_C5_BelieveOnlyTheService"},
	"process stopped": {
		"TestLease_LookAfterAStoppedProcessSaysLostBeforeAnyTimer", "TestLease_StoppedProcessEndsTheContextAtTheNextRenewal",
		"TestRun_P2_StoppedWrapperDoesNotKeepTheCommandAlive", "TestChaos_OnOneServer", "TestChaos_OnTheService",
	},
}

// row is a row of the table, by setting.
func rows(letters []setting, t *strings.Builder) {
	played := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
		return !slices.ContainsFunc(letters, func(s setting) bool {
			return slices.ContainsFunc(s.entries, func(e *entry) bool { return s.plays(e, &f) })
		})
	})
	t.WriteString("\n| entry |")
	for _, f := range played {
		t.WriteString(" " + f.name + " |")
	}
	t.WriteString("\n|---|" + strings.Repeat("---|", len(played)) + "\n")
	for _, e := range letters[0].entries {
		fmt.Fprintf(t, "| `%s`", strings.Join(e.of, "`, `"))
		if e.situation != "" {
			t.WriteString(", " + e.situation)
		}
		t.WriteString(" |")
		for _, f := range played {
			cell := ""
			for _, s := range letters {
				if s.plays(e, &f) {
					cell += s.letter
				}
			}
			t.WriteString(" " + cell + " |")
		}
		t.WriteString("\n")
	}
}

// printed returns the rows of all settings, their letters and the tests that are named.
func printed() string {
	var b strings.Builder
	all := settings()
	rows(all[:7], &b)
	rows(all[7:12], &b)
	rows(all[12:], &b)
	for _, s := range all {
		fmt.Fprintf(&b, "\n%s: %s", s.letter, s.name)
	}
	b.WriteString("\n\n| resource | tests |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, cmp.Or(code(resources[name]), "it asks no store"))
	}
	b.WriteString("\n| fault elsewhere | tests |\n|---|---|\n")
	for _, f := range faults {
		if tests := elsewhere[f.name]; len(tests) > 0 {
			fmt.Fprintf(&b, "| %s | %s |\n", f.name, code(tests))
		}
	}
	return b.String()
}

// code returns names in code style.
func code(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "`" + strings.Join(names, "`, `") + "`"
}

// exported are the functions and methods of a package, but its options.
func exported(t *testing.T, dir string) (all []string) {
	t.Helper()
	names, err := filepath.Glob(root + "/" + dir + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.IsExported() {
				if entry := entryOf(fn); entry != "" {
					all = append(all, entry)
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func entryOf(fn *ast.FuncDecl) string {
	name := fn.Name.Name
	if fn.Recv == nil {
		if strings.HasPrefix(name, "With") {
			return ""
		}
		return name
	}
	if slices.Contains([]string{"Error", "Unwrap", "String", "Is"}, name) {
		return ""
	}
	of := fn.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	id, ok := of.(*ast.Ident)
	if !ok || !id.IsExported() {
		return ""
	}
	return id.Name + "." + name
}

// tests are the names of all tests.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names, declared := make(map[string]bool), regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestMatrix_HasARowForEveryEntry compares the table with the library, the routes and the tests.
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
	text := printed()
	names := tests(t)
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
		if !names[m[1]] {
			t.Errorf("%s is named, and does not exist", m[1])
		}
	}
	for _, f := range faults {
		if len(f.plays) == 0 && len(elsewhere[f.name]) == 0 {
			t.Errorf("%s is not tried", f.name)
		}
	}
	if *show {
		t.Log("\n" + text)
	}
}
