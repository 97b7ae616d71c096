package guide_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadme_ShowsTheFirstExample compares the programs of the README with the program that the
// tests run: a part of it, without one level of indentation, and all of it.
func TestReadme_ShowsTheFirstExample(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("../first/main.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 || !strings.Contains(strings.ReplaceAll(string(source), "\n\t", "\n"), "\n"+blocks[0][1]) ||
		!strings.HasSuffix(string(source), "\n"+blocks[1][1]) {
		t.Error("README.md does not have the program of examples/first")
	}
}

// TestGuide_ShowsTheCodeThatIsTested holds the Go blocks of the guide against this
// package, line by line.
func TestGuide_ShowsTheCodeThatIsTested(t *testing.T) {
	page, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("guide.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	for _, block := range blocks {
		if !strings.Contains(string(source), block[1]) {
			t.Errorf("guide.go does not have\n%s", block[1])
		}
	}
	if len(blocks) < 2 {
		t.Errorf("%d blocks", len(blocks))
	}
}
