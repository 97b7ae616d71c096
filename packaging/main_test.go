//go:build linux

// Package packaging tests the packages, units, image and manifests for operators. It needs
// root, and the programs of .ci/deps night.
package packaging

import (
	"bytes"
	"context"
	"errors"
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

// run runs a command, and returns its output. The error has it too.
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

// machine makes a machine of its own at $1: it sees this machine's files, with its changes
// in memory, and the release of $2 in /dist.
const machine = `set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
root=$1/root
mount -t tmpfs none "$root/run"
mount -t tmpfs none "$root/tmp"
[ ! -e /usr/bin/mandb ] || ln -sf /bin/true "$root/usr/bin/mandb" # or every step makes the index of all man pages
mkdir -p "$root/dist"
cp "$2"/leasehold_* "$2"/SHA256SUMS "$root/dist"
mount -t proc none "$root/proc"
`

// host runs a script as root of a machine of its own, without Go and without a running
// systemd.
func host(t *testing.T, script string) string {
	t.Helper()
	needRoot(t)
	const enter = machine + `mount --bind /dev "$root/dev"
exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" sh -ec "cd /dist; $3"`
	return must(t, "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", enter, "host", t.TempDir(), dist, script)
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("packages are installed into an overlay of the root directory, for which the test has to be root")
	}
}

// booted runs a script on a machine of its own on which systemd is the first process, with
// a network and control groups of its own. The machine ends with the script.
func booted(t *testing.T, script string) string {
	t.Helper()
	needRoot(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"script": script, "out": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const enter = machine + `mount -t sysfs -o ro none "$root/sys"
mount -t cgroup2 none "$root/sys/fs/cgroup"
mount -t tmpfs none "$root/dev"
for device in null zero full random urandom tty; do
	touch "$root/dev/$device"
	mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 none "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
: >"$root/etc/machine-id"
cp "$3/script" "$root/script"
touch "$root/out"
mount --bind "$3/out" "$root/out"
cat >"$root/etc/systemd/system/script.service" <<'UNIT'
[Unit]
Wants=basic.target
After=basic.target
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
Environment=HOME=/root
WorkingDirectory=/dist
ExecStart=/bin/sh -e /script
StandardOutput=append:/out
StandardError=append:/out
UNIT
mkdir "$root/before"
cd "$root"
pivot_root . before
mount --make-rshared /
umount -l /before
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=script.service --show-status=no`
	said, failed := run("timeout", "--signal=KILL", "300", "unshare", "--mount", "--net", "--pid", "--cgroup", "--uts", "--ipc", "--fork", "--kill-child",
		"sh", "-c", enter, "booted", t.TempDir(), dist, dir)
	out, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if failed != nil {
		t.Errorf("%v\n%s\n%s", errors.Unwrap(failed), said, out)
	}
	return string(out)
}
