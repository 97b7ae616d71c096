//go:build linux

package packaging

import (
	"crypto/x509"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// imageConfig is the part of the configuration of the image that a runtime uses.
type imageConfig struct {
	Config struct {
		User            string
		Entrypoint, Cmd []string
		Env             []string
		Healthcheck     struct{ Test []string }
	}
}

// TestImage_ServesAsNobodyAndIsHealthy builds the image from scratch and runs it as its
// configuration requires: by its user, with only its files and its environment, and with a
// network of its own. Buildah's way to run needs cgroups that a build machine may
// not give, so chroot does it.
func TestImage_ServesAsNobodyAndIsHealthy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, "image/build", filepath.Join(dir, "image.tar"))
	must(t, "tar", "-xf", filepath.Join(dir, "image.tar"), "-C", dir)
	var manifest []struct {
		Config string
		Layers []string
	}
	decode(t, filepath.Join(dir, "manifest.json"), &manifest)
	var config imageConfig
	decode(t, filepath.Join(dir, manifest[0].Config), &config)
	root := filepath.Join(dir, "root")
	if err := os.MkdirAll(filepath.Join(root, "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, layer := range manifest[0].Layers {
		must(t, "tar", "-xf", filepath.Join(dir, layer), "-C", root)
	}
	roots, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || !x509.NewCertPool().AppendCertsFromPEM(roots) {
		t.Errorf("the image trusts no CA: %v", err)
	}
	c := config.Config
	user, _, _ := strings.Cut(c.User, ":")
	if user == "" || user == "0" || user == "root" || len(c.Healthcheck.Test) < 2 || c.Healthcheck.Test[0] != "CMD" {
		t.Fatalf("the image is run as %q and checked by %q", c.User, c.Healthcheck.Test)
	}
	const script = `ip link set lo up
mount -t proc proc "$1/proc"
inside="env -i $2 $(command -v chroot) --userspec=$3 $1"
$inside $4 &
for i in $(seq 300); do
	if $inside $5; then exit 0; fi
	sleep 0.2
done
exit 1`
	out := must(t, "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", script, "image",
		root, strings.Join(c.Env, " "), c.User, strings.Join(append(c.Entrypoint, c.Cmd...), " "), strings.Join(c.Healthcheck.Test[1:], " "))
	if !strings.Contains(out, "ready") {
		t.Error(out)
	}
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}
