package filedriver_test

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/filedriver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestCheck_FindsWhatMakesADirectoryUnsafe(t *testing.T) {
	skip.Unless(t, runtime.GOOS != "windows", "permissions of Unix")
	dir := t.TempDir()
	s, err := filedriver.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Acquire(t.Context(), driver.Request{Key: "k", ID: "a", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	want := func(severity driver.Severity, check, text string) {
		t.Helper()
		report, err := s.Check(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		found := report.About(check)
		if len(found) != 1 || found[0].Severity != severity || !strings.Contains(found[0].What+"; "+found[0].Remedy, text) {
			t.Errorf("%s: %+v, want %v with %q", check, found, severity, text)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	want(driver.Good, "directory", dir)
	want(driver.Good, "permissions", "only the owner")
	want(driver.Good, "clock", "since boot")
	want(driver.Good, "records", "all 1")
	for mode, severity := range map[os.FileMode]driver.Severity{0o770: driver.Notice, 0o702: driver.Unsafe} {
		if err := os.Chmod(filepath.Join(dir, "rooms"), mode); err != nil {
			t.Fatal(err)
		}
		want(severity, "permissions", "rooms")
	}
	damage(t, dir)
	want(driver.Warning, "records", "1 cannot be read")
}

// damage overwrites the record of every room.
func damage(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "rooms"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		return os.WriteFile(path, []byte("nonsense"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
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
		s, err := filedriver.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		report, err := s.Check(t.Context())
		if err != nil || len(report.Nodes) != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		servers = append(servers, report.Nodes[0].Server)
		s.Close()
	}
	if servers[0] != servers[1] || servers[0] == servers[2] {
		t.Errorf("%q", servers)
	}
}
