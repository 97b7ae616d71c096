package leasehold_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// refusesItsHolder is a condition by which a resource refuses the second write of
// the holder itself, whose token is that of the first.
var refusesItsHolder = regexp.MustCompile(`(?i)where[^\n]*\bfence\s*<\s*[$?:]`)

func TestDocuments_HR_F14_NoFenceRefusesTheHoldersSecondWrite(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch ext := filepath.Ext(path); {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".":
			return filepath.SkipDir
		case d.IsDir() || ext != ".go" && ext != ".md" && ext != ".html" && ext != ".yaml":
			return nil
		}
		text, err := os.ReadFile(path)
		seen += strings.Count(string(text), "fence <= ")
		if found := refusesItsHolder.FindString(string(text)); found != "" {
			t.Errorf("%s: %q refuses the holder's second write; say <=", path, found)
		}
		return err
	})
	if err != nil || seen == 0 {
		t.Errorf("%d conditions found, %v", seen, err)
	}
}

var (
	fencedBlock  = regexp.MustCompile("(?s)```.*?```")
	relativeLink = regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`) // a colon is that of a URL
	heading      = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestDocuments_LinksLeadSomewhere follows every link from one page of the
// repository to another, and to its headings.
func TestDocuments_LinksLeadSomewhere(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "integrations/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	followed := 0
	for _, page := range pages {
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
		t.Errorf("%d links found in %q", followed, pages)
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

// anchors are what GitHub makes of the headings of a page.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	for _, h := range heading.FindAllStringSubmatch(prose(t, page), -1) {
		all["#"+strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")] = true
	}
	return all
}
