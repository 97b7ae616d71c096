package filedriver

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestCheck_FindsWhatMakesADirectoryUnsafe(t *testing.T) {
	skip.Unless(t, runtime.GOOS != "windows", "permissions of Unix")
	dir := t.TempDir()
	s := open(t, dir)
	grant(t, s, driver.Request{Key: "k", ID: "a"})
	want := func(severity driver.Severity, check, text string) {
		t.Helper()
		report, err := s.Check(t.Context())
		noError(t, err)
		found := report.About(check)
		if len(found) != 1 || found[0].Severity != severity || !strings.Contains(found[0].What+"; "+found[0].Remedy, text) {
			t.Errorf("%s: %+v, want %v with %q", check, found, severity, text)
		}
	}
	noError(t, os.Chmod(dir, 0o700))
	want(driver.Good, "directory", dir)
	want(driver.Good, "permissions", "only the owner")
	want(driver.Good, "clock", "since boot")
	want(driver.Good, "records", "all 1")
	for mode, severity := range map[fs.FileMode]driver.Severity{0o770: driver.Notice, 0o702: driver.Unsafe} {
		noError(t, os.Chmod(filepath.Join(dir, "rooms"), mode))
		want(severity, "permissions", "rooms")
	}
	noError(t, os.WriteFile(recordPath(s, "k"), []byte("nonsense"), 0o600))
	want(driver.Warning, "records", "1 cannot be read")
}

func TestCheck_TellsOneDirectoryByAnyName(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, other); err != nil {
		skip.Unless(t, runtime.GOOS != "windows", "the right to make links")
		t.Fatal(err)
	}
	var servers []string
	for _, name := range []string{dir, other, t.TempDir()} {
		report, err := open(t, name).Check(t.Context())
		if err != nil || len(report.Nodes) != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		servers = append(servers, report.Nodes[0].Server)
	}
	if servers[0] != servers[1] || servers[0] == servers[2] {
		t.Errorf("%q", servers)
	}
}
