package matrix_test

import (
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

var update = flag.Bool("matrix.update", false, "write docs/matrix.md")

const (
	root = "../../.."
	file = root + "/docs/matrix.md"
)

// local are entries that ask no store, or do so only through what they return.
var local = map[string]string{
	"New": "opens nothing", "FromContext": "", "MultiFromContext": "", "ObserveWait": "its function is called by Lock",
	"Client.Mutex": "", "Client.RWMutex": "", "Client.Semaphore": "", "Client.Election": "", "Client.Stats": "", "RWMutex.RLocker": "", "Semaphore.Places": "",
	"Lease.Context": "compares the clock", "Lease.Key": "", "Lease.Owner": "", "Lease.ID": "", "Lease.Token": "", "Lease.State": "compares the clock", "Lease.Deadline": "", "Lease.Remaining": "",
	"MultiLease.Context": "compares the clock", "MultiLease.Parts": "", "MultiLease.Tokens": "", "MultiLease.State": "", "MultiLease.Deadline": "", "MultiLease.Remaining": "",
	"State.Live": "", "LockInfo.Kind": "", "AcquiredInfo.Outcome": "", "RenewedInfo.Outcome": "", "EndedInfo.Lost": "", "EndedInfo.Reason": "", "ReleasedInfo.Outcome": "",
	"Alongside": "", "Constant": "", "Linear": "", "Exponential": "", "Backoff.Delay": "",
}

// command is one of the command line: what of the library it calls under a fault, and
// the tests of what only it adds.
type command struct {
	calls []string
	tests []string
	says  string // why nothing can happen, if it calls nothing
}

var commands = map[string]command{
	"run":       {calls: []string{"Mutex.Lock", "Lease.Release", "Multi.Lock"}, tests: []string{"TestCommands_UnderFaults", "TestRun_C2_FrozenStoreKillsGroupBeforeLeaseEnds", "TestRun_HR_F8_EndsAtOnceWhenTheStoreIsFrozen", "TestRun_P2_StoppedWrapperDoesNotKeepTheCommandAlive", "TestRun_UnconfirmedReleaseIsTold", "TestRunElectWait_WaitForAStoreThatIsAway", "TestClients_HR_C5_BelieveOnlyTheService"}},
	"elect":     {calls: []string{"Election.Lead"}, tests: []string{"TestCommands_UnderFaults", "TestRunElectWait_WaitForAStoreThatIsAway"}},
	"acquire":   {calls: []string{"Mutex.Lock", "Lease.Detach", "Lease.Release"}, tests: []string{"TestCommands_UnderFaults", "TestStories"}},
	"renew":     {calls: []string{"Mutex.Adopt", "Lease.Detach"}, tests: []string{"TestCommands_UnderFaults", "TestStories"}},
	"release":   {calls: []string{"Lease.Release"}, tests: []string{"TestCommands_UnderFaults", "TestRelease_HR_C7_ALateAnswerDoesNotHideALoss"}},
	"wait":      {calls: []string{"Client.Inspect"}, tests: []string{"TestCommands_UnderFaults", "TestStories"}},
	"list":      {calls: []string{"Client.Keys"}, tests: []string{"TestCommands_UnderFaults", "TestStories"}},
	"inspect":   {calls: []string{"Client.Inspect"}, tests: []string{"TestCommands_UnderFaults", "TestStories"}},
	"watch":     {calls: []string{"Client.Inspect"}, tests: []string{"TestCommands_UnderFaults", "TestStories"}},
	"break":     {calls: []string{"Client.Break"}, tests: []string{"TestCommands_UnderFaults", "TestRun_C3_BrokenLockEndsStubbornGroupAfterGrace"}},
	"doctor":    {calls: []string{"Mutex.TryLock"}, tests: []string{"TestCommands_UnderFaults", "TestDoctor_EndsWithOneForAServerThatMakesLocksUnsafe"}},
	"serve":     {calls: []string{"POST /v1/locks/{name}"}, tests: []string{"TestOperation_CommandOutlivesTheTimeToConfirmAHandOver", "TestStories"}},
	"bench":     {calls: []string{"Mutex.Lock"}, tests: []string{"TestStories"}},
	"health":    {calls: []string{"GET /readyz", "GET /livez"}, tests: []string{"TestStories"}},
	"version":   {says: "it asks no store"},
	"leasehold": {says: "it only finds the command"},
}

// resources are the entries of package fence, and of postgresdriver.Pin, which a resource calls
// and not somebody who locks, with the tests of what they do under faults.
var resources = map[string][]string{
	"fence.SQL.Do":       {"TestPostgres_UnderFaults", "TestPostgres_HR_F3_GreatestOfTwoFirstClaimsIsNotRefused", "TestSQL_FailedWorkIsRolledBack"},
	"fence.SQL.Raise":    {"TestPostgres_UnderFaults", "TestPostgres_HR_F3_SerializationFailuresAreToBeRepeated"},
	"fence.SQL.Create":   {"TestSQL_HR_F4_TableThatTakesDifferentNamesForOneIsRefused"},
	"fence.Redis.Do":     {"TestRedis_UnderFaults", "TestRedis_ForeignDataAtTheFenceIsAnError", "TestRedis_UnexpectedRepliesAreErrors"},
	"fence.SQL.Schema":   nil,
	"fence.Dollar":       nil,
	"fence.Of":           nil,
	"postgresdriver.Pin": {"TestPin_WhoeverIsLateChangesNothing", "TestPin_KeepsTheLockAlthoughTheLeaseRunsOut", "TestPin_KeepsTheLockAfterItsReleaseAndBreak"},
}

// elsewhere are the tests of faults that no bubble can have, and of faults that need a
// server of a kind.
var elsewhere = map[string][]string{
	"store forgets":        {"TestExplore_OrdersOfMessages", "TestChaos_OnAServerThatForgets", "TestChaos_OnAQuorum"},
	"store comes back old": {"TestTokens_P4_RiseOnAServerThatComesBackWithOldData"},
	"failover":             {"TestChaos_OnASentinel", "TestChaos_OnACluster"},
	"starved":              {"TestLock_HR_G3_BurstOfWaitersIsAskedOnceEach", "TestScripts_StallOfTheServerEndsNoLeaseEarly", "TestChaos_OnOneServer"},
	"proxy answers":        {"TestClients_HR_C5_BelieveOnlyTheService"},
	"process stopped": {
		"TestLease_LookAfterAStoppedProcessSaysLostBeforeAnyTimer", "TestLease_StoppedProcessEndsTheContextAtTheNextRenewal", "TestElection_HR_C1_LeaderThatWasStoppedSeesTheLossAtItsFirstLook",
		"TestRenewal_AnswerToAStoppedProcessRevivesNothing", "TestRun_P2_StoppedWrapperDoesNotKeepTheCommandAlive", "TestChaos_OnOneServer", "TestChaos_OnTheService",
	},
}

const head = `# Every entry under every fault

This page is generated (` + "`go test ./internal/test/matrix -args -matrix.update`" + `), and a test holds it against the sources: a new function or method of the
library, a new route of the service or a new command without a row fails the test run, and so does a test that is named here and does not exist.

A letter is a set of plays in virtual time (` + "`TestMatrix_EveryEntryUnderEveryFault`" + `). Two clients share one lock. The entry is called by the first one, whose requests meet with the
fault: the first of them or the second, and all after it where the fault lasts. Then the fault ends, and the second client asks for the lock. On PostgreSQL a proxy that understands its protocol does the same to real requests, 3 s more than here are
allowed, and a play is repeated if the machine stood still for 0.5 s and something is wrong but for two holders or a token that does not rise. It is judged whether

- nobody holds beside somebody, and tokens rise (P1, P4), and whether somebody that believes in a lease is inside, for as long as it believes and with its token;
- an error is one that the fault explains, and whether one that says that nothing happened leaves nobody inside and nobody waiting (P8); whether what was said to have ended has ended, and does not come back (P7);
- a call returns in time: at once if its context had ended, within 6 s (a release may take 5 s) if that ends, the client is closed or it takes no context;
- whoever only waits for the end of the context is told of a loss by the deadline, with a logger that takes its time with a loss (P2); where one message is disturbed nothing is lost (P3);
- a live lease is still held some leases later, its release succeeds, the second client gets the lock within two leases, and nothing is left (P3, P5, P9).

| letter | where |
|---|---|
| s | on a store over a table, which can forget, and return to what it was. The rule is that of internal/room by way of driver/roomdriver, as on PostgreSQL |
| l | on Redis: the driver, and its scripts in the interpreter of the microscope. Each command of the driver is a request; when the server forgets, it has lost its scripts and all connections, too |
| h | by way of a service of two replicas, which are asked in turn; the way to them suffers |
| e | the same, where somebody in between keeps back what the streams of events tell, after their beginning |
| q | on a quorum of three, of which the way to one node suffers, and which one may forget |
| m | the same, where the nodes are Redis |
| p | on a real PostgreSQL server, in real time (` + "`TestMatrix_OnPostgres`" + `, which only ` + "`make test-long`" + ` plays: of each cell one play, of three cells one by lot, and all around a restart) |
| r | by raw HTTP, to two replicas in turn, repeated while there is no answer; the way to them suffers |
| b | the same; the way from them to their store suffers |
| c | the same on a quorum of three; the way from one replica to one node suffers |
| i, j | as r and b, where the store is Redis as in l |

Each letter stands for one to twelve plays, and a test fails if none of them has met the fault (but on PostgreSQL, where one is drawn). Why a cell is empty stands below.

| fault | what happens |
|---|---|
| reply lost, request lost | the request has its effect and is not answered; has none and is not answered |
| request late | it is given up, and has its effect 4 s later; a lease lasts 3 s |
| request doubled | it has its effect, and once more 1.2 s later |
| answer slow | the answer, or the request, takes 1.2 s |
| context ended before, during, after | the call; during: while a request is under way, there or back, or before a frozen store |
| store frozen | for 2 s and for 7 s; what it was sent is done then, whoever waits |
| store away later | from 10 ms after the call has returned, for half a lease: frozen, without an answer, or refusing. No lease is lost by it |
| store forgets, comes back old | after its answer it has nothing; is as it was before the call |
| failover | the request is not answered, and the store is as it was before the call |
| store refuses | for 2 s, or for 12 s and leases that last, it says that it does nothing: no connections, no memory; HTTP: 503; Redis: ten error replies in turn, from OOM to NOREPLICAS |
| no descriptors | for 2 s, or for 12 s, no connection can be opened. On Redis one that is there serves on, and no lease is lost that has one |
| proxy answers | somebody in between answers with a page of HTML and one of eleven statuses, while nothing arrives, or although it arrived |
| starved | for 5 s everything takes up to 0.9 s, there and back |
| clock edge | the answer comes at the end of the lease, and a microsecond before |
| closed meanwhile | the client is closed while a request is under way, or lost; of a service, one of two replicas is shut down, while somebody hears a stream of it: it ends within 2.2 s |
| answer cut | the server does all of the transaction, and the connection ends before the answer to its last statement, which is the commit; then, in a half of the plays, the server refuses for 7 s |
| session killed | the server does all of the transaction but the commit, and then ends the session |
| server restarted | all entries meet at the same time with a SIGKILL of the server, which comes back with its data; a half of the requests is on its way |
| two faults | one after the other: a request is not answered, or late, and then the store refuses, forgets or fails over; a gateway says 503 to what has arrived, for 12 s; a node of a quorum forgets, or hears nothing either, while another hears nothing |
`

// row is one of the table, by setting.
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

func document(entries []string) string {
	var b strings.Builder
	all := settings()
	b.WriteString(head)
	b.WriteString("\n## Library\n")
	rows(all[:7], &b)
	b.WriteString("\nWithout q and m: " + noQuorum + ". A node of a quorum that comes back old is not noticed by any guard, and a quorum does not fail over. Only HTTP and PostgreSQL have somebody in between who answers.\n")
	b.WriteString("Without p: options that change nothing of what PostgreSQL is asked, since real time is dear. And nothing between a client and PostgreSQL sends a request twice, and a real clock has no edge that could be met. Re-entry asks the store for nothing, and so notices no restart.\n")
	b.WriteString("`Lease.Release`, `MultiLease.Release` and `Client.Close` take no context that could end.\n")
	b.WriteString("A token of `WithMinToken` that is ahead of the clock is known to the store alone: one that forgets it goes on from its clock.\n\nThese ask no store:\n")
	for _, e := range entries {
		if says, ok := local[e]; ok && says != "" {
			fmt.Fprintf(&b, "`%s` (%s) ", e, says)
		} else if ok {
			fmt.Fprintf(&b, "`%s` ", e)
		}
	}
	b.WriteString("\nand all options `With…`.\n\n## Service\n")
	rows(all[7:12], &b)
	b.WriteString("\nWhat goes on between services and a store is not HTTP. Looks, readers, places and patterns are not called on a quorum.\n")
	fmt.Fprintf(&b, "Without b: to answer `%s` a service asks its store for nothing (the last one shows what it was told before); for `/readyz` it does.\n", strings.Join(noStore, "`, `"))
	b.WriteString("\nWith a page for people a service also has these. The files of the page are a part of the program, and have no row.\n")
	rows(all[12:], &b)
	b.WriteString("\n## Command\n\nA command calls the library, under the faults of its rows. What it adds is tried on real processes:\n`TestCommands_UnderFaults` plays each but serve and bench that asks a store, under a lost reply, a silent network, a server that refuses, that is frozen, that has forgotten, that is\nfull and that wants a password, and with an output that cannot be written.\n\n| command | calls | tests |\n|---|---|---|\n")
	names := make([]string, 0, len(commands))
	for name := range commands {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		c := commands[name]
		calls := c.says
		if len(c.calls) > 0 {
			calls = "`" + strings.Join(c.calls, "`, `") + "`"
		}
		tests := ""
		if len(c.tests) > 0 {
			tests = "`" + strings.Join(c.tests, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, calls, tests)
	}
	b.WriteString("\n## Resources\n\nThese are called by what a lock protects, in a transaction or a script of its own, on real servers.\n\n| entry | tests under faults |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(resources)) {
		says := "it asks nobody"
		if tests := resources[name]; len(tests) > 0 {
			says = "`" + strings.Join(tests, "`, `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", name, says)
	}
	b.WriteString("\n## Elsewhere\n\nNo bubble stops a process, starves a machine or replaces a server. Those are tried on real ones:\n\n| fault | tests |\n|---|---|\n")
	for _, f := range faults {
		if tests := elsewhere[f.name]; len(tests) > 0 {
			fmt.Fprintf(&b, "| %s | `%s` |\n", f.name, strings.Join(tests, "`, `"))
		}
	}
	return b.String()
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

// verbs are the commands of the command line.
func verbs(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob(root + "/cmd/leasehold/internal/cli/*.go")
	if err != nil {
		t.Fatal(err)
	}
	use := regexp.MustCompile(`\bUse:\s+"(\w+)`)
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range use.FindAllSubmatch(text, -1) {
			all = append(all, string(m[1]))
		}
	}
	return all
}

// TestMatrix_HasARowForEveryEntry holds the table against the library, the routes, the
// commands and the tests, and docs/matrix.md against the table.
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
	if all := verbs(t); len(all) != len(commands) {
		t.Errorf("there are the commands %v, and %d rows", all, len(commands))
	} else {
		for _, name := range all {
			if _, ok := commands[name]; !ok {
				t.Errorf("the command %s has no row", name)
			}
		}
	}
	for name, c := range commands {
		for _, call := range c.calls {
			if !rows[call] {
				t.Errorf("%s calls %s, which has no row", name, call)
			}
		}
	}
	text := document(entries)
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
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := os.ReadFile(file); err != nil || string(is) != text {
		t.Errorf("docs/matrix.md is not what is generated (%v): run with -args -matrix.update", err)
	}
}
