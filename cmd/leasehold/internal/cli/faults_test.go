//go:build linux

package cli_test

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/internal/test/redistest"
	"github.com/leasehold-go/leasehold/internal/test/respproxy"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// stage is the store of one play, behind a proxy.
type stage struct {
	t      *testing.T
	server *redistest.Server
	proxy  *respproxy.Proxy
	full   bool   // nothing can be printed
	about  string // a text in all requests for the lock of the command
	lost   *respproxy.Rule
}

// url returns the URL of the store through the proxy.
func (s *stage) url() string { return "redis://" + s.proxy.Addr() + "/0" }

// do makes the server run a command, and keeps the connections of the play.
func (s *stage) do(command ...any) {
	s.t.Helper()
	if err := s.server.Client().Do(s.t.Context(), command...).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// faults are the faults that begin before the start of a command.
var faults = map[string]func(s *stage){
	"a reply is lost":          func(s *stage) { s.lost = s.proxy.Add(respproxy.DropReply, 1, respproxy.Mentions(s.about)) },
	"the network is silent":    func(s *stage) { s.proxy.Mute() },
	"the server refuses":       func(s *stage) { s.proxy.Refuse(true) },
	"the server is frozen":     func(s *stage) { s.server.Stop() },
	"the server has forgotten": func(s *stage) { s.do("FLUSHALL") },
	"a password is missing":    func(s *stage) { s.do("CONFIG", "SET", "requirepass", "another") },
	"the server is full":       func(s *stage) { s.do("CONFIG", "SET", "maxmemory", "1") },
	"nothing can be printed":   func(s *stage) { s.full = true },
}

// away lists the faults during which the store does not answer.
var away = []string{"the network is silent", "the server refuses", "the server is frozen", "a password is missing"}

// outage returns the --max-outage of a command: short if the fault lasts, and otherwise longer
// than a pause of a busy machine, which must not fail the command.
func outage(fault string) string {
	if slices.Contains(append([]string{"a reply is lost", "the server is full"}, away...), fault) {
		return "1s"
	}
	return "20s"
}

// exits maps faults to exit codes; "" stands for the faults without an entry.
type exits map[string]int

// ifAway returns codes of a command that exits with code while its store is away.
func ifAway(code int, others exits) exits {
	codes := make(exits)
	for _, fault := range away {
		codes[fault] = code
	}
	maps.Copy(codes, others)
	return codes
}

// performance is a command that is run under every fault.
type performance struct {
	args string // $id is the id of a lease of the lock demo, $outage the value of outage
	held bool   // the lock is held before
	// about is a text in all requests for the lock, "demo" if it is empty.
	about string
	// until is a text in the output of a command that does not end. The test then sends TERM.
	until string
	codes exits
}

var performances = map[string]performance{
	"acquire": {args: "acquire --max-outage $outage demo", codes: ifAway(69, exits{
		"": 0, "a reply is lost": 69, "the server is full": 69, "nothing can be printed": 74,
	})},
	"run": {args: "run --max-outage $outage demo echo done", codes: ifAway(69, exits{
		"": 0, "a reply is lost": 69, "the server is full": 69, "nothing can be printed": 1, // the code of echo
	})},
	"elect": {args: "elect demo echo done", until: "does not answer", codes: ifAway(143, exits{
		"": 0, "a password is missing": 69, "the server is full": 143, "nothing can be printed": 1, // the code of echo
	})},
	"renew":   {args: "renew demo $id", held: true, codes: ifAway(69, exits{"": 0, "the server has forgotten": 79})},
	"release": {args: "release demo $id", held: true, codes: ifAway(69, exits{"": 0, "the server has forgotten": 79})},
	"break":   {args: "break demo $id --reason test", held: true, codes: ifAway(69, exits{"": 0, "a reply is lost": 69, "the server has forgotten": 1, "nothing can be printed": 74})},
	"inspect": {args: "inspect demo", held: true, codes: ifAway(69, exits{"": 0, "a reply is lost": 69, "nothing can be printed": 74})},
	"list":    {args: "list demo", held: true, codes: ifAway(69, exits{"": 0, "a reply is lost": 69, "nothing can be printed": 74})},
	"wait":    {args: "wait -w 1s demo", held: true, codes: ifAway(69, exits{"": 75, "a reply is lost": 69, "the server has forgotten": 0})},
	"watch":   {args: "watch demo", held: true, until: "demo:", codes: ifAway(69, exits{"": 143, "a reply is lost": 69, "nothing can be printed": 74})},
	"doctor":  {args: "doctor", about: "leasehold-doctor", codes: ifAway(69, exits{"": 0, "a reply is lost": 1, "the server is full": 1, "nothing can be printed": 74})},
}

// TestCommands_UnderFaults runs every command that uses a store under every fault. Each must
// have the right exit code, print the reason of a failure, and end in time.
func TestCommands_UnderFaults(t *testing.T) {
	skip.Nightly(t, "every command under every fault takes minutes")
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(performances)) {
		for _, fault := range slices.Sorted(maps.Keys(faults)) {
			t.Run(name+"/"+fault, func(t *testing.T) {
				t.Parallel()
				play(t, performances[name], fault)
			})
		}
	}
}

// TestCommands_EachHasItsFaults: a new command must have a row, or a reason for no row.
func TestCommands_EachHasItsFaults(t *testing.T) {
	t.Parallel()
	elsewhere := map[string]string{
		"bench":   "measures a store that answers",
		"serve":   "has tests of its own",
		"health":  "asks a service, not a store",
		"schema":  "asks nobody",
		"version": "asks nobody", "completion": "asks nobody", "help": "asks nobody",
	}
	out, _ := run(t, "__complete", "")
	var found []string
	for line := range strings.Lines(out) {
		if name, _, is := strings.Cut(line, "\t"); is {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	rows := append(slices.Collect(maps.Keys(performances)), slices.Collect(maps.Keys(elsewhere))...)
	slices.Sort(rows)
	if !slices.Equal(found, rows) {
		t.Errorf("there are the commands %q, and rows or reasons for no row for %q", found, rows)
	}
}

func play(t *testing.T, p performance, fault string) {
	s := &stage{t: t, server: redistest.Start(t), about: cmp.Or(p.about, "demo")}
	s.proxy = respproxy.Start(t, s.server.Addr())
	id := ""
	if p.held {
		id = acquire(t, s.server.URL())
	}
	faults[fault](s)

	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	args := strings.Fields(strings.NewReplacer("$id", id, "$outage", outage(fault)).Replace(p.args))
	began := time.Now()
	c := launch(t, func(cmd *exec.Cmd) {
		cmd.Env = append(os.Environ(), "LEASEHOLD_STORE="+s.url())
		cmd.Stdout = cmd.Stderr
		if s.full {
			cmd.Stdout = full
		}
	}, args...)
	want, ok := p.codes[fault]
	if !ok {
		want = p.codes[""]
	}
	if want == 128+int(syscall.SIGTERM) && p.until != "" {
		c.awaitSaid(p.until)
		c.signal(syscall.SIGTERM)
	}
	c.end()
	code, text := c.ProcessState.ExitCode(), c.said.String()
	if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		code = 128 + int(status.Signal())
	}
	if code != want {
		t.Errorf("exit code %d, want %d: %s", code, want, text)
	}
	if s.lost != nil && s.lost.Count() == 0 {
		t.Errorf("no reply was lost: %s", text)
	}
	if took := time.Since(began); took > bound {
		t.Errorf("it took %v: %s", took, text)
	}
	if !p.held && code != 0 && !slices.Contains(away, fault) {
		wantFree(t, newClient(t, s.server.URL()), "demo")
	}
	if strings.Contains(text, "goroutine") || strings.Contains(text, "panic") {
		t.Errorf("it failed inside: %s", text)
	}
	if slices.Contains([]int{64, 69, 70, 74, 75, 79}, code) && !strings.Contains(text, "leasehold: ") {
		t.Errorf("no reason in %q", text)
	}
}
