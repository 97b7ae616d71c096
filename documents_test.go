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
