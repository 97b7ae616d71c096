//go:build linux

// Package packaging tests what operators install: packages, units, the image, manifests.
// It needs root, and what .ci/deps installs with WITH_PACKAGES=1.
package packaging

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	version = "0.1.0"
	bound   = 12 * time.Minute // of one command, on a machine that is busy
)

// dist is a directory with everything that a release has. LEASEHOLD_DIST
// names one that was built before, with the environment that run gives.
var dist string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "dist")
	if dist = os.Getenv("LEASEHOLD_DIST"); err == nil && dist == "" {
		dist = filepath.Join(dir, "dist")
		err = build(filepath.Join(dir, "first"), dist)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build copies the source to a directory and has the copy build a release into out.
func build(source, out string) error {
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	script := `cd .. && git -c safe.directory='*' ls-files -z --cached --others --exclude-standard | tar --null -T - --ignore-failed-read -cf - | tar -xf - -C "$1" && "$1/packaging/build" "$2"`
	_, err := run("bash", "-o", "pipefail", "-c", script, "build", source, out)
	return err
}

// run runs a command, and returns what it prints. The error has its output.
func run(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "VERSION=v"+version, "ARCHES=amd64 arm64", "SOURCE_DATE_EPOCH=1700000000")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out.String())
	}
	return out.String(), nil
}

func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := run(name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func artifact(arch, ending string) string {
	return filepath.Join(dist, "leasehold_"+version+"_linux_"+arch+ending)
}

// host runs a script as root of a machine of its own: it sees this machine's files, with
// its changes in memory, no Go, and no running systemd. The release is in /dist.
func host(t *testing.T, script string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("packages are installed into an overlay of the root directory, for which the test has to be root")
	}
	const enter = `set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t tmpfs none "$1/root/run"
mount -t tmpfs none "$1/root/tmp"
[ ! -e /usr/bin/mandb ] || ln -sf /bin/true "$1/root/usr/bin/mandb" # or every step makes the index of all man pages
mkdir -p "$1/root/dist"
cp "$2"/leasehold_* "$2"/SHA256SUMS "$1/root/dist"
mount -t proc none "$1/root/proc"
mount --bind /dev "$1/root/dev"
exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$1/root" sh -ec "cd /dist; $3"`
	return must(t, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "host", t.TempDir(), dist, script)
}
