package leasehold_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestShort_WhatIsLeftOutIsPlayedByTheLongTests has make test-long play each package of
// which -short leaves something out.
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
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || path == "short_test.go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pkg := "."
		if dir := filepath.ToSlash(filepath.Dir(path)); dir != "." {
			pkg = "./" + dir
		}
		if pkg == "./internal/test/skip" { // its callers leave something out
			return nil
		}
		leavesOut := bytes.Contains(text, []byte("testing.Short()")) || bytes.Contains(text, []byte("skip.Nightly("))
		if leavesOut && !slices.Contains(played, pkg) {
			t.Errorf("%s leaves something out with -short, and make test-long does not play %s", path, pkg)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
