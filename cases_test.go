package leasehold_test

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
	"strconv"
	"strings"
	"testing"
)

var updateCases = flag.Bool("cases.update", false, "write the names of tests into docs/cases.md")

const casesFile = "docs/cases.md"

// caseRow is a row of the list of cases: its id, what is written about it, and
// the tests that are named.
var caseRow = regexp.MustCompile(`(?m)^(\| ([LWKRQHC]\d+|HR_[A-H]\d+) \|[^|]+\|[^|]+\|)([^|]*)\|$`)

// awaited are the cases whose tests are not there yet. It must be empty where a
// version is released, and names none that has a test.
var awaited = []string{}

// TestCases_EachHasATest holds the list of hard cases against the sources: each
// has a test, or a row of a conformance suite, whose name carries its id.
func TestCases_EachHasATest(t *testing.T) {
	list, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	named := caseTests(t)
	if *updateCases {
		list = caseRow.ReplaceAllFunc(list, func(row []byte) []byte {
			m := caseRow.FindSubmatch(row)
			return fmt.Appendf(nil, "%s %s |", m[1], caseCell(named[string(m[2])]))
		})
		if err := os.WriteFile(casesFile, list, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rows := caseRow.FindAllStringSubmatch(string(list), -1)
	if len(rows) != 150 {
		t.Errorf("%d cases are listed", len(rows))
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	for _, row := range rows {
		id, told := row[2], quoted.FindAllStringSubmatch(row[3], -1)
		if slices.Contains(awaited, id) {
			if len(named[id]) > 0 {
				t.Errorf("%s has tests now: take it from the awaited, and run with -args -cases.update", id)
			}
			continue
		}
		if len(named[id]) == 0 {
			t.Errorf("%s has no test whose name carries it:%s", id, row[1])
		}
		if len(told) == 0 {
			t.Errorf("%s names no test in %s", id, casesFile)
		}
		for _, name := range told {
			if !slices.Contains(named[id], name[1]) {
				t.Errorf("%s names %s, which does not exist or does not carry the id", id, name[1])
			}
		}
	}
}

// caseCell names the first few tests of a case.
func caseCell(tests []string) string {
	const most = 3
	var cell []string
	for _, name := range tests[:min(most, len(tests))] {
		cell = append(cell, "`"+name+"`")
	}
	if more := len(tests) - most; more > 0 {
		cell = append(cell, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(cell, ", ")
}

// caseTests returns the names of tests and of rows of suites, by case.
func caseTests(t *testing.T) map[string][]string {
	t.Helper()
	found := make(map[string]map[string]bool)
	eachName(t, func(name string, row bool) {
		for _, id := range idsIn(name, row) {
			if found[id] == nil {
				found[id] = make(map[string]bool)
			}
			found[id][name] = true
		}
	})
	named := make(map[string][]string)
	for id, names := range found {
		named[id] = slices.SortedFunc(maps.Keys(names), func(a, b string) int {
			// Functions before rows, which are found by them.
			return cmp.Or(-cmp.Compare(isTest(a), isTest(b)), cmp.Compare(a, b))
		})
	}
	return named
}

// idsIn returns the ids of the cases that a name carries. An HR before an id makes
// it one of a list of its own, and holds for all ids after it.
func idsIn(name string, row bool) (ids []string) {
	words := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("_ :/", r) })
	prefix := ""
	for i, word := range words {
		switch {
		case word == "HR":
			prefix = "HR_"
		case !caseID.MatchString(prefix + word):
		case prefix == "" && row && (i > 0 || len(words) == 1): // a row begins with its id, and says more
		default:
			ids = append(ids, prefix+word)
		}
	}
	return ids
}

// allNames returns the names of all tests and rows.
func allNames(t *testing.T) map[string]bool {
	t.Helper()
	names := make(map[string]bool)
	eachName(t, func(name string, _ bool) { names[name] = true })
	return names
}

// eachName tells of every test, and of every text that may be the name of a row
// of a suite.
func eachName(t *testing.T, tell func(name string, row bool)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (strings.HasPrefix(entry.Name(), ".") && path != "." || entry.Name() == "bench" || entry.Name() == "examples") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".txtar") {
			return casesOfStory(path, tell)
		}
		suite := strings.Contains(path, "drivertest") || strings.Contains(path, "locktest")
		if !strings.HasSuffix(path, "_test.go") && (!suite || !strings.HasSuffix(path, ".go")) {
			return nil
		}
		return namesIn(path, tell)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// casesOfStory is eachName for a story of the command, which names its cases in a comment.
func casesOfStory(path string, tell func(name string, row bool)) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	story := strings.TrimSuffix(filepath.Base(path), ".txtar")
	for _, id := range regexp.MustCompile(`HR_[A-H]\d+`).FindAll(text, -1) {
		tell(fmt.Sprintf("story %s/%s", story, id), true)
	}
	return nil
}

func isTest(name string) int {
	if strings.HasPrefix(name, "Test") {
		return 1
	}
	return 0
}

// caseID is an id as a word of a name.
var caseID = regexp.MustCompile(`^([LWKRQHC]|HR_[A-H])\d+$`)

// namesIn is eachName for one file.
func namesIn(path string, tell func(name string, row bool)) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv == nil && isTest(n.Name.Name) == 1 {
				tell(n.Name.Name, false)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING && text != "" {
				tell(text, true)
			}
		}
		return true
	})
	return nil
}

// TestPromises_EachNamesTestsThatExist holds the table of promises against the
// sources.
func TestPromises_EachNamesTestsThatExist(t *testing.T) {
	const file = "docs/reliability.md"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	names := allNames(t)
	quoted := regexp.MustCompile("`([^`]+)`")
	for n := 1; n <= 9; n++ {
		row := regexp.MustCompile(fmt.Sprintf(`(?m)^\| P%d \|[^|]+\|([^|]+)\|$`, n)).FindSubmatch(text)
		if row == nil {
			t.Errorf("%s does not tell of P%d", file, n)
			continue
		}
		tests := quoted.FindAllSubmatch(row[1], -1)
		if len(tests) < 3 {
			t.Errorf("P%d names %d tests", n, len(tests))
		}
		for _, test := range tests {
			if !names[string(test[1])] {
				t.Errorf("P%d names %s, which does not exist", n, test[1])
			}
		}
	}
}
