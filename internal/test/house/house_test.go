package main

import (
	"os"
	"strings"
	"testing"
)

func TestCount_SortsFilesByPurpose(t *testing.T) {
	files := map[string]string{
		"mutex.go":                "// Lock locks.\npackage leasehold\n",
		"mutex_test.go":           "package leasehold\n",
		"server/server.go":        "package server\n// Nobody tells whom.\n",
		"internal/test/x/x.go":    "package x\n\n\n",
		"docs/guide.md":           "Locks work.\n",
		"docs/testdata/a.md":      "not counted\n",
		".ci/run":                 "",
		"cmd/leasehold/main.go":   "package main\nvar a = \"a lock that nobody holds\"\n",
		"server/testdata/foo.txt": "",
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	got, err := count(append(names, "deleted.go"), func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, os.ErrNotExist
		}
		return []byte(text), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"lines of the product": 6, "lines of tests and their support": 4, "files of the root": 1,
		"lines of the root": 2, "test files of the root": 1, "folders of the root": 4, "words of documents": 2,
		"unclear of 1000 words, product": 400, "unclear of 1000 words, tests": 0, "unclear of 1000 words, documents": 0,
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

func TestCompare_ReportsWhatIsAboveItsLimit(t *testing.T) {
	counts := map[string]float64{"files": 5, "lines": 3}
	table, next, above := compare(counts, "files: 4\nlines: 9\n")
	if !strings.Contains(above, "files (5, limit 4)") || strings.Contains(above, "lines") {
		t.Errorf("above: %q", above)
	}
	if next != "files: 4\nlines: 3\n" {
		t.Errorf("limits: %q", next)
	}
	if strings.Count(table, "\n") != 2 {
		t.Errorf("table: %q", table)
	}
	for _, limits := range []string{"files: 4\n", "files: 4\nlines: 9\nother: 1\n", "files: 4\nlines: many\n"} {
		if _, _, above := compare(counts, limits); above == "" {
			t.Errorf("limits %q are accepted", limits)
		}
	}
}
