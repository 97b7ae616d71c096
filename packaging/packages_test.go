//go:build linux

package packaging

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// installed checks the contents of every package inside a host.
const installed = `
leasehold version | grep -q 'leasehold v0.1.0 '
test "$(leasehold run --store file:/tmp/locks demo -- echo inside)" = inside
getent passwd leasehold | grep -q nologin
test "$(stat -c %G-%a /etc/default/leasehold)" = leasehold-640
for page in leasehold leasehold-run leasehold-serve; do
	gzip -dc /usr/share/man/man1/$page.1.gz | mandoc -T utf8 | grep -q -i leasehold
done
bash -n /usr/share/bash-completion/completions/leasehold
test -s /usr/share/fish/vendor_completions.d/leasehold.fish
grep -v '^#' /etc/leasehold.yaml | grep . && exit 1
systemd-analyze verify /usr/lib/systemd/system/leasehold.service /usr/lib/systemd/system/leasehold.socket
`

func TestPackage_DebIsInstalledUpgradedRemovedAndPurged(t *testing.T) {
	t.Parallel()
	out := host(t, `
dpkg -i leasehold_0.1.0_linux_amd64.deb
`+installed+`
echo 'store: redis://mine' >>/etc/leasehold.yaml
dpkg-deb -R leasehold_0.1.0_linux_amd64.deb /tmp/next
sed -i 's/^Version: .*/Version: 0.2.0/' /tmp/next/DEBIAN/control
echo '# new' >>/tmp/next/etc/leasehold.yaml
dpkg-deb -Znone --root-owner-group -b /tmp/next /tmp/next.deb
rm /etc/default/leasehold # the unit does without it
dpkg --force-confold -i /tmp/next.deb
grep -q mine /etc/leasehold.yaml
dpkg -s leasehold | grep -q 'Version: 0.2.0'
mkdir -p /var/lib/leasehold
dpkg -r leasehold
test ! -e /usr/bin/leasehold
grep -q mine /etc/leasehold.yaml
test -d /var/lib/leasehold
dpkg -P leasehold
test ! -e /etc/leasehold.yaml
test ! -e /var/lib/leasehold
echo all done
`)
	if !strings.Contains(out, "all done") {
		t.Error(out)
	}
}

// The dependency on /bin/sh is not known to the empty database of rpm on a Debian.
func TestPackage_RpmIsInstalledUpgradedAndRemoved(t *testing.T) {
	t.Parallel()
	out := host(t, `
rpm="rpm --dbpath /tmp/rpmdb"
rpm -qpl leasehold_0.1.0_linux_amd64.rpm | grep -qx /usr/bin/leasehold
rpm -qpc leasehold_0.1.0_linux_amd64.rpm | grep -qx /etc/leasehold.yaml
$rpm -i --nodeps leasehold_0.1.0_linux_amd64.rpm
`+installed+`
echo 'store: redis://mine' >>/etc/leasehold.yaml
$rpm -U --nodeps --replacepkgs leasehold_0.1.0_linux_amd64.rpm
grep -q mine /etc/leasehold.yaml
$rpm -e --nodeps leasehold
test ! -e /usr/bin/leasehold
grep -q mine /etc/leasehold.yaml.rpmsave
echo all done
`)
	if !strings.Contains(out, "all done") {
		t.Error(out)
	}
}

// maxExposure is the threshold of systemd-analyze security, in tenths: 20 is "OK", and
// the sockets of the network, which the service is for, are most of it.
const maxExposure = "20"

func TestUnits_TheServiceIsHardened(t *testing.T) {
	t.Parallel()
	out, err := run("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold="+maxExposure, "systemd/leasehold.service")
	if err != nil {
		t.Error(out, err)
	}
}

// TestUnits_SystemdRunsTheServiceAndTheExample: with systemd as the first process the
// service has no rights, a restart refuses no connection, an upgrade restarts it, and a
// removal stops it.
func TestUnits_SystemdRunsTheServiceAndTheExample(t *testing.T) {
	t.Parallel()
	out := booted(t, `set -x
dpkg -i leasehold_0.1.0_linux_amd64.deb >/dev/null 2>&1
systemctl enable --now --quiet leasehold.socket leasehold.service
leasehold health
pid=$(systemctl show -P MainPID leasehold.service)
test "$(ps -o user= -p $pid)" = leasehold
grep -qx 'CapBnd:.0000000000000000' /proc/$pid/status
grep -qx 'NoNewPrivs:.1' /proc/$pid/status
grep -qx 'Seccomp:.2' /proc/$pid/status
systemctl reload leasehold
test $pid = $(systemctl show -P MainPID leasehold.service)

systemctl restart leasehold &
for i in $(seq 30); do curl -sS --fail --max-time 20 http://127.0.0.1:8080/livez >/dev/null; done
wait $!
test $pid != $(systemctl show -P MainPID leasehold.service)

pid=$(systemctl show -P MainPID leasehold.service)
dpkg -i leasehold_0.1.0_linux_amd64.deb >/dev/null 2>&1
test $pid != $(systemctl show -P MainPID leasehold.service)

cp /usr/share/doc/leasehold/examples/nightly-report.* /etc/systemd/system/
printf '#!/bin/sh\necho "$LEASEHOLD_KEY" >>/reports\n' >/usr/local/bin/nightly-report
chmod 755 /usr/local/bin/nightly-report
echo 'store: file:/var/lib/team' >>/etc/leasehold.yaml
systemctl daemon-reload
systemd-analyze verify /etc/systemd/system/nightly-report.service /etc/systemd/system/nightly-report.timer
systemctl start nightly-report.service
systemctl start nightly-report.service # the lock is closed for 10 minutes
test "$(cat /reports)" = nightly-report
systemctl start nightly-report.timer
systemctl is-active --quiet nightly-report.timer

dpkg -r leasehold >/dev/null 2>&1
systemctl is-active leasehold.service leasehold.socket && exit 1
echo all done
`)
	if !strings.HasSuffix(out, "all done\n") {
		t.Error(out)
	}
}

// maxBinary is the greatest size of a stripped binary, 32 MB. It has 30.2; a package that looks up
// methods by name, such as text/template, would bring it to 50. The build tag grpcnotrace leaves that
// package out of gRPC.
const maxBinary = 32_000_000

func TestRelease_TheBinaryIsSmallEnough(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, "tar", "-xzf", artifact("amd64", ".tar.gz"), "-C", dir)
	info, err := os.Stat(filepath.Join(dir, "leasehold"))
	if err != nil || info.Size() > maxBinary {
		t.Errorf("%v: %v, want at most %d bytes", err, info, maxBinary)
	}
	t.Logf("%d bytes", info.Size())
}

// Packages for another architecture are not run.
func TestRelease_TheOtherArchitectureHasTheSameForItsMachines(t *testing.T) {
	t.Parallel()
	var files [2]string
	for i, arch := range []struct{ name, rpm, elf string }{{"amd64", "x86_64", "x86-64"}, {"arm64", "aarch64", "ARM aarch64"}} {
		deb, rpm, dir := artifact(arch.name, ".deb"), artifact(arch.name, ".rpm"), t.TempDir()
		if got := must(t, "dpkg-deb", "-f", deb, "Architecture"); strings.TrimSpace(got) != arch.name {
			t.Errorf("%s is for %s", deb, got)
		}
		if got := must(t, "rpm", "-qp", "--qf", "%{ARCH}", rpm); got != arch.rpm {
			t.Errorf("%s is for %s", rpm, got)
		}
		must(t, "tar", "-xzf", artifact(arch.name, ".tar.gz"), "-C", dir)
		must(t, "dpkg-deb", "-x", deb, filepath.Join(dir, "deb"))
		must(t, "sh", "-c", `mkdir "$1" && rpm2cpio "$2" | cpio -idm --quiet --no-absolute-filenames -D "$1"`, "unpack", filepath.Join(dir, "rpm"), rpm)
		binary := filepath.Join(dir, "leasehold")
		if got := must(t, "file", binary); !strings.Contains(got, arch.elf) || !strings.Contains(got, "statically linked") {
			t.Error(got)
		}
		for _, package_ := range []string{"deb", "rpm"} {
			must(t, "cmp", binary, filepath.Join(dir, package_, "usr/bin/leasehold"))
		}
		files[i] = must(t, "sh", "-c", `cd "$1" && find . -not -name leasehold -type f -exec sha256sum {} + | sort && find . -printf '%p %m\n' | sort`, "list", dir)
	}
	if files[0] != files[1] {
		t.Errorf("one architecture has\n%s\nthe other\n%s", files[0], files[1])
	}
}

func TestRelease_TwoBuildsInTwoDirectoriesAreTheSame(t *testing.T) {
	t.Parallel()
	again := t.TempDir()
	if err := build(filepath.Join(t.TempDir(), "a directory of another length"), again); err != nil {
		t.Fatal(err)
	}
	sums := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if first, second := sums(dist), sums(again); first != second {
		t.Errorf("one build has\n%s\nthe other\n%s", first, second)
	}
}

func TestRelease_TheBillOfMaterialsNamesEveryModule(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(artifact("amd64", ".sbom.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BomFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(text, &bom); err != nil || bom.BomFormat != "CycloneDX" {
		t.Fatal(bom.BomFormat, err)
	}
	found := make(map[string]string)
	for _, c := range bom.Components {
		found[c.Name] = c.Version
		if c.Version == "" || strings.HasPrefix(c.Name, ".") {
			t.Errorf("%+v names no release", c)
		}
	}
	dir := t.TempDir()
	must(t, "tar", "-xzf", artifact("amd64", ".tar.gz"), "-C", dir)
	for _, line := range regexp.MustCompile(`(?m)^\tdep\t(\S+)`).FindAllStringSubmatch(must(t, "go", "version", "-m", filepath.Join(dir, "leasehold")), -1) {
		if found[line[1]] == "" {
			t.Errorf("%s is not in the bill of materials", line[1])
		}
	}
	if len(found) < 10 {
		t.Errorf("%d components", len(found))
	}
}
