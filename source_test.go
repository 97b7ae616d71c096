package leasehold_test

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

const (
	module = "github.com/leasehold-go/leasehold"
	core   = module + "/driver"
	inner  = module + "/internal/..."
)

// stores are the packages that implement a driver. They are adapters around the library and
// depend neither on it nor on one another.
var stores = []string{
	core + "/filedriver", core + "/httpdriver", core + "/memdriver", core + "/postgresdriver", core + "/quorumdriver",
	core + "/redisdriver", core + "/rueidisdriver",
}

// direction is the set of packages that a package may reach.
type direction struct {
	pkg string
	// imports are the packages outside the standard library that it may name
	// itself. Nil allows all that reaches does.
	imports []string
	// reaches are the packages outside the standard library on which it may
	// depend in the end. Nil allows all but the library and the stores.
	reaches []string
	why     string
}

func directions() []direction {
	all := []direction{
		{
			pkg: module, imports: []string{core, inner}, reaches: []string{core, inner, "golang.org/x/sys/..."},
			why: "users of the library get no store, and no dependency, that they did not ask for",
		},
		{pkg: core, reaches: []string{}, why: "any module may implement the contract"},
		{
			pkg: module + "/internal/room", reaches: []string{core},
			why: "the rule is pure, so that every store and the reference model can share it",
		},
		{pkg: module + "/internal/timing", reaches: []string{core}, why: "all users of a store have the same time limits"},
		{
			pkg:     module + "/internal/session",
			imports: []string{core, module + "/internal/clock", module + "/internal/oneline", module + "/internal/timing"},
			why:     "the engine serves both the library and the service, and depends on neither",
		},
		{
			pkg: module + "/server/auth", imports: []string{core, module + "/internal/oneline", module + "/internal/check"},
			why: "authentication does not depend on the request",
		},
		{pkg: module + "/fence", reaches: []string{}, why: "a resource that checks tokens does not need the locks"},
		{
			pkg:     core + "/roomdriver",
			reaches: []string{core, module + "/internal/check", module + "/internal/room", module + "/internal/hints", module + "/internal/timing"},
			why:     "a store over a table depends only on its table",
		},
		{pkg: core + "/drivertest", why: "the conformance suite belongs to implementors and favours no store"},
	}
	for _, store := range stores {
		all = append(all, direction{pkg: store, why: "a store is an adapter around the library"})
	}
	return all
}

// TestImports_PointOneWay checks the arrows of docs/internals/design.md on every system for which the
// library is built.
func TestImports_PointOneWay(t *testing.T) {
	all := directions()
	args := []string{"list", "-f", `{{.ImportPath}}|{{join .Imports " "}}|{{join .Deps " "}}`}
	for _, d := range all {
		args = append(args, d.pkg)
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil || bytes.Count(out, []byte("\n")) != len(all) {
			t.Fatalf("go list for %s: %v, %d lines for %d packages", system, err, bytes.Count(out, []byte("\n")), len(all))
		}
		for line := range strings.Lines(string(out)) {
			pkg := strings.Split(strings.TrimSpace(line), "|")
			for _, d := range all {
				if d.pkg == pkg[0] {
					d.check(t, strings.Fields(pkg[1]), strings.Fields(pkg[2]))
				}
			}
		}
	}
}

func (d direction) check(t *testing.T, imports, deps []string) {
	t.Helper()
	for _, path := range imports {
		if !standard(path) && d.imports != nil && !within(d.imports, path) {
			t.Errorf("%s imports %s: %s", d.pkg, path, d.why)
		}
	}
	for _, path := range deps {
		if !d.mayReach(path) {
			t.Errorf("%s depends on %s: %s", d.pkg, path, d.why)
		}
	}
}

func (d direction) mayReach(path string) bool {
	switch {
	case standard(path):
		return true
	case d.reaches != nil:
		return within(d.reaches, path)
	case path == module:
		return false
	}
	return !slices.ContainsFunc(stores, func(store string) bool { return store != d.pkg && within([]string{store + "/..."}, path) })
}

// standard reports whether the path is the standard library's: no domain.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// within reports whether the path is one of the patterns, or below one that
// ends in "/...".
func within(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		tree, ok := strings.CutSuffix(pattern, "/...")
		return path == tree || ok && strings.HasPrefix(path, tree+"/")
	})
}

// TestMethods_NameNoInternalType looks at all methods of the public types, also at those of
// embedded types.
func TestMethods_NameNoInternalType(t *testing.T) {
	for _, v := range []any{
		&leasehold.Client{}, &leasehold.Mutex{}, &leasehold.RWMutex{}, &leasehold.RLocker{}, &leasehold.Semaphore{}, &leasehold.Places{},
		&leasehold.Multi{}, &leasehold.MultiLease{}, &leasehold.Lease{}, &leasehold.Election{},
	} {
		all := reflect.TypeOf(v)
		if all.NumMethod() == 0 {
			t.Errorf("%v has no methods", all)
		}
		for i := range all.NumMethod() {
			m := all.Method(i)
			if strings.Contains(m.Type.String(), "session.") || strings.Contains(m.Type.String(), "line.") {
				t.Errorf("%v: method %s has the type %v", all, m.Name, m.Type)
			}
		}
	}
}

// TestModule_RequiresNothingThatOnlyTheCommandNeeds reads go.mod, including requirements of tests
// and indirect requirements, because they bind the versions of the modules that require this
// module.
func TestModule_RequiresNothingThatOnlyTheCommandNeeds(t *testing.T) {
	text := prose(t, "go.mod")
	required := regexp.MustCompile(`(?m)^\t(\S+) v\S+`).FindAllStringSubmatch(text, -1)
	if len(required) < 2 || strings.Contains(text, "replace") {
		t.Errorf("%d requirements were found, or something is replaced", len(required))
	}
	ofTheCommand := []string{
		"github.com/spf13/...", "golang.org/x/term", "google.golang.org/grpc",
		"go.opentelemetry.io/otel/sdk/...", "go.opentelemetry.io/otel/exporters/...",
	}
	for _, module := range required {
		if within(ofTheCommand, module[1]) {
			t.Errorf("go.mod requires %s, which belongs into cmd/leasehold/go.mod", module[1])
		}
	}
}

// caseRow is a row of the list of cases.
var caseRow = regexp.MustCompile(`(?m)^\| ([LWKRQHC]\d+|HR_[A-H]\d+) \|[^|]+\|[^|]+\|$`)

// TestCases_EachHasATest checks that each case of docs/internals/cases.md has a test, or a row of a
// conformance suite, whose name has its id. It logs the names.
func TestCases_EachHasATest(t *testing.T) {
	list, err := os.ReadFile("docs/internals/cases.md")
	if err != nil {
		t.Fatal(err)
	}
	named := caseTests(t)
	rows := caseRow.FindAllSubmatch(list, -1)
	if len(rows) != 150 {
		t.Errorf("%d cases are listed", len(rows))
	}
	for _, row := range rows {
		id := string(row[1])
		if len(named[id]) == 0 {
			t.Errorf("%s has no test", id)
		}
		t.Logf("%s: %s", id, strings.Join(named[id], ", "))
	}
}

// caseTests returns the names of tests and of rows of suites, by case. Functions come
// before rows.
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	named := make(map[string][]string)
	for _, n := range names(t) {
		for _, id := range idsIn(n.text, n.row) {
			if !slices.Contains(named[id], n.text) {
				named[id] = append(named[id], n.text)
			}
		}
	}
	for _, all := range named {
		slices.SortFunc(all, func(a, b string) int { return cmp.Or(-cmp.Compare(isTest(a), isTest(b)), cmp.Compare(a, b)) })
	}
	return named
}

// idsIn returns the ids of the cases in a name. HR before an id makes it an id of another
// list, also for the ids after it.
func idsIn(name string, row bool) (ids []string) {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("_ :/", r) })
	prefix := ""
	for i, word := range words {
		switch {
		case word == "HR":
			prefix = "HR_"
		case !caseID.MatchString(prefix + word):
		case prefix == "" && row && (i > 0 || len(words) == 1): // a row begins with its id, and a text follows
		default:
			ids = append(ids, prefix+word)
		}
	}
	return ids
}

// source is a file of the repository.
type source struct {
	path string
	text []byte
}

// tree reads all files of the repository, once for all tests, except for hidden directories.
var tree = sync.OnceValues(func() (files []source, err error) {
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".":
			return fs.SkipDir
		case !slices.Contains([]string{".go", ".md", ".html", ".yaml", ".txtar"}, filepath.Ext(path)):
			return nil
		}
		text, err := os.ReadFile(path)
		files = append(files, source{filepath.ToSlash(path), text})
		return err
	})
	return files, err
})

// sources returns the files of the repository.
func sources(t *testing.T) []source {
	t.Helper()
	skip.Racing(t, "it reads the sources in one goroutine")
	files, err := tree()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// name is a test, or a text that may be a row of a suite.
type name struct {
	text string
	row  bool
}

var (
	namesOnce sync.Once
	allNames  []name
)

// names returns the names of all tests and rows.
func names(t *testing.T) []name {
	t.Helper()
	files := sources(t)
	namesOnce.Do(func() {
		for _, f := range files {
			dir, _, _ := strings.Cut(f.path, "/")
			suite := strings.Contains(f.path, "drivertest")
			switch {
			case dir == "bench" || dir == "examples":
			case strings.HasSuffix(f.path, ".txtar"): // a story of the command names its cases in a comment
				story := strings.TrimSuffix(filepath.Base(f.path), ".txtar")
				for _, id := range storyID.FindAll(f.text, -1) {
					allNames = append(allNames, name{fmt.Sprintf("story %s/%s", story, id), true})
				}
			case strings.HasSuffix(f.path, "_test.go") || suite && strings.HasSuffix(f.path, ".go"):
				allNames = append(allNames, namesIn(t, f)...)
			}
		}
	})
	return allNames
}

var storyID = regexp.MustCompile(`HR_[A-H]\d+`)

func isTest(name string) int {
	if strings.HasPrefix(name, "Test") {
		return 1
	}
	return 0
}

// caseID is an id as a word of a name.
var caseID = regexp.MustCompile(`^([LWKRQHC]|HR_[A-H])\d+$`)

// namesIn returns the tests and the texts of a file.
func namesIn(t *testing.T, f source) (all []name) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), f.path, f.text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && isTest(n.Name.Name) == 1 {
				all = append(all, name{n.Name.Name, false})
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && text != "" {
				all = append(all, name{text, true})
			}
		}
		return true
	})
	return all
}

// TestPromises_EachNamesTestsThatExist compares the table of promises with the sources.
func TestPromises_EachNamesTestsThatExist(t *testing.T) {
	const file = "docs/internals/reliability.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	known := make(map[string]bool)
	for _, n := range names(t) {
		known[n.text] = true
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for n := 1; n <= 10; n++ {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| P%d \|[^|]+\|([^|]+)\|$`, n)).FindSubmatch(text)
		if row == nil {
			t.Errorf("%s does not mention P%d", file, n)
			continue
		}
		tests := quoted.FindAllSubmatch(row[1], -1)
		if len(tests) < 3 {
			t.Errorf("P%d names %d tests", n, len(tests))
		}
		for _, test := range tests {
			if !known[string(test[1])] {
				t.Errorf("P%d names %s, which does not exist", n, test[1])
			}
		}
	}
}

// TestDocuments_NameTestsThatExist looks for tests, and for patterns of -run, in all documents and in the
// table of the matrix.
func TestDocuments_NameTestsThatExist(t *testing.T) {
	known := names(t)
	quoted := regexp.MustCompile(`\bTest[A-Z]\w*[A-Za-z0-9]\b`)
	for _, page := range sources(t) {
		if path.Ext(page.path) != ".md" && page.path != "internal/test/matrix/table_test.go" {
			continue
		}
		for _, test := range quoted.FindAllString(string(page.text), -1) {
			if !slices.ContainsFunc(known, func(n name) bool { return !n.row && strings.HasPrefix(n.text, test) }) {
				t.Errorf("%s names %s, which does not exist", page.path, test)
			}
		}
	}
}

// declared matches a function or a method with its receiver's type.
var declared = regexp.MustCompile(`(?m)^func (?:\(\w* ?\*?(\w+)(?:\[\w+\])?\) )?(\w+)[\[(]`)

// functions returns the functions of a file, as "Do", and its methods, as "Mutex.Lock".
func functions(text []byte) (all []string) {
	for _, m := range declared.FindAllSubmatch(text, -1) {
		all = append(all, strings.TrimPrefix(string(m[1])+"."+string(m[2]), "."))
	}
	return all
}

// entries returns the exported functions and methods of this package that a program calls. Methods that
// package fmt or errors calls need no example.
func entries(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
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
		for _, name := range functions(text) {
			of, method, _ := strings.Cut(name, ".")
			method = cmp.Or(method, of)
			if ast.IsExported(of) && ast.IsExported(method) && !slices.Contains([]string{"Error", "Unwrap", "String", "Is"}, method) {
				all = append(all, name)
			}
		}
	}
	return all
}

// called are the names after a dot in the code of an example.
func called(code ast.Node) map[string]bool {
	names := make(map[string]bool)
	ast.Inspect(code, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			names[s.Sel.Name] = true
		}
		return true
	})
	return names
}

// named have examples of their own, under which the documentation shows their methods.
var named = []string{"Mutex", "RWMutex", "RLocker", "Semaphore", "Places", "Multi", "Election", "Lease", "MultiLease"}

// TestExamples_ShowEveryEntry: every function and method is called by an example that is run, and
// the methods of a lock or a lease by an example that is named after the type.
func TestExamples_ShowEveryEntry(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "example_test.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	calls := make(map[string]bool)
	for _, x := range doc.Examples(file) {
		if x.Output == "" && !x.EmptyOutput {
			t.Errorf("Example%s has no output", x.Name)
		}
		of, _, _ := strings.Cut(x.Name, "_")
		for name := range called(x.Code) {
			calls[name], calls[of+"."+name] = true, true
		}
	}
	all := entries(t)
	if len(all) < 80 {
		t.Fatalf("%d entries were found", len(all))
	}
	for _, name := range all {
		of, method, ok := strings.Cut(name, ".")
		if ok && !slices.Contains(named, of) {
			name = method
		}
		if !calls[name] {
			t.Errorf("no example calls %s of %s", name, of)
		}
	}
}

// refusesItsHolder matches a condition by which a resource refuses the second write of the holder
// itself, which has the same token as the first write.
var refusesItsHolder = regexp.MustCompile(`(?i)where[^\n]*\bfence\s*<\s*[$?:]`)

func TestDocuments_HR_F14_NoFenceRefusesTheHoldersSecondWrite(t *testing.T) {
	seen := 0
	for _, f := range sources(t) {
		if strings.HasSuffix(f.path, ".txtar") {
			continue
		}
		seen += bytes.Count(f.text, []byte("fence <= "))
		if found := refusesItsHolder.Find(f.text); found != nil {
			t.Errorf("%s: %q refuses the holder's second write; use <=", f.path, found)
		}
	}
	if seen == 0 {
		t.Error("no condition was found")
	}
}

var (
	fencedBlock  = regexp.MustCompile("(?s)```.*?```")
	relativeLink = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`) // a colon is that of a URL
	documentName = regexp.MustCompile(`\bdocs/(internals/)?[a-z]+\.md`)
	heading      = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestDocuments_LinksLeadSomewhere follows every link from one page of the repository to another,
// and to its headings, and looks for the documents that other files name.
func TestDocuments_LinksLeadSomewhere(t *testing.T) {
	followed := 0
	for _, f := range sources(t) {
		page := f.path
		for _, named := range documentName.FindAllString(string(f.text), -1) {
			if _, err := os.Stat(named); err != nil {
				t.Errorf("%s names %s, which does not exist", page, named)
			}
		}
		if path.Ext(page) != ".md" {
			continue
		}
		for _, link := range relativeLink.FindAllStringSubmatch(prose(t, page), -1) {
			followed++
			target := page
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(page), link[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if link[2] != "" && !anchors(t, target)[link[2]] {
				t.Errorf("%s: %s has no heading %s", page, target, link[2])
			}
		}
	}
	if followed < 20 {
		t.Errorf("%d links found", followed)
	}
}

// requirement is a direct requirement of a module, without its major version.
var requirement = regexp.MustCompile(`(?m)^\t\S+?/([\w.-]+)(?:/v\d+)? v\S+$`)

func TestDocuments_EachDependencyHasAReason(t *testing.T) {
	_, reasons, _ := strings.Cut(prose(t, "docs/internals/design.md"), "\n## Dependencies\n")
	stores, err := filepath.Glob("driver/*/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range append(stores, "go.mod", "cmd/leasehold/go.mod") {
		required := requirement.FindAllStringSubmatch(prose(t, module), -1)
		if len(required) < 2 {
			t.Errorf("%s: %d requirements were found", module, len(required))
		}
		for _, r := range required {
			if !strings.Contains(reasons, r[1]) {
				t.Errorf("docs/internals/design.md gives no reason for %s of %s", r[1], module)
			}
		}
	}
}

// TestDocuments_PathOfLockExists looks for every file and function that the first page of
// docs/internals/design.md names. A function follows the name of its file.
func TestDocuments_PathOfLockExists(t *testing.T) {
	_, page, _ := strings.Cut(prose(t, "docs/internals/design.md"), "\n## The path of a `Lock`\n")
	page, _, _ = strings.Cut(page, "\n## ")
	var file string
	var names []string
	seen := 0
	for _, step := range regexp.MustCompile(`(?m)^\d+\. .*$`).FindAllString(page, -1) {
		for _, quoted := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(step, -1) {
			switch name := quoted[1]; {
			case path.Ext(name) == ".lua":
				if _, err := os.Stat(name); err != nil {
					t.Error(err)
				}
			case path.Ext(name) == ".go":
				text, err := os.ReadFile(name)
				if err != nil {
					t.Fatal(err)
				}
				file, names = name, functions(text)
			case !slices.Contains(names, name):
				t.Errorf("docs/internals/design.md: %s has no function %s", file, name)
			default:
				seen++
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d functions were found", seen)
	}
}

// prose is a page without its blocks of code.
func prose(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return fencedBlock.ReplaceAllString(string(text), "")
}

// anchors returns the anchors that GitHub makes of the headings of a page.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(prose(t, page), -1) {
		all["#"+strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}

// TestShort_WhatIsLeftOutIsPlayedByTheLongTests checks that make test-long plays each package
// that -short shortens.
func TestShort_WhatIsLeftOutIsPlayedByTheLongTests(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, recipe, _ := bytes.Cut(makefile, []byte("\ntest-long:"))
	recipe, _, _ = bytes.Cut(recipe, []byte("\n\n"))
	lists := regexp.MustCompile(`(?m)^(LONG|COUNTED) := .*$`).FindAll(makefile, -1)
	if len(lists) != 2 {
		t.Fatalf("%d lists of packages", len(lists))
	}
	played := strings.Fields(string(recipe) + " " + string(bytes.Join(lists, []byte(" "))))
	for _, f := range sources(t) {
		dir := "./" + path.Dir(f.path)
		if dir == "./." {
			dir = "."
		}
		if !strings.HasSuffix(f.path, ".go") || f.path == "source_test.go" || dir == "./internal/test/skip" { // its callers leave something out
			continue
		}
		leavesOut := bytes.Contains(f.text, []byte("testing.Short()")) || bytes.Contains(f.text, []byte("skip.Nightly("))
		if leavesOut && !slices.Contains(played, dir) {
			t.Errorf("%s leaves something out with -short, and make test-long does not play %s", f.path, dir)
		}
	}
}
