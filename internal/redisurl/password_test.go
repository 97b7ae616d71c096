package redisurl

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

// A list of processes or the environment shows a password in a URL.
func TestParse_ReadsPasswordsFromFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	password, empty := write("password", " s3:c@ret\nnot this\n"), write("empty", "\n")
	c, err := Parse("redis+sentinel://u@h/?master=m&password-file=" + password + "&sentinel_password_file=" + password)
	if err != nil {
		t.Fatal(err)
	}
	if c.login.user != "u" || c.sentinelLogin.user != "default" || c.login.path != password || c.sentinelLogin.path != password {
		t.Errorf("%+v, of the sentinels %+v", c.login, c.sentinelLogin)
	}
	if c.Username+c.Password+c.SentinelUsername+c.SentinelPassword != "" {
		t.Errorf("the client library gets a password too: %+v", c)
	}
	for url, hint := range map[string]string{
		"redis://h?password-file=" + filepath.Join(dir, "none"): "no such file",
		"redis://h?password-file=" + empty:                      "is empty",
		"redis://h?password_file=" + dir:                        "directory",
		"redis://:p@h?password-file=" + password:                "not both",
		"redis://h?sentinel-password-file=" + password:          "go with redis+sentinel",
	} {
		_, err := Parse(url)
		if !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "s3:c@ret") {
			t.Errorf("%s: %v, want ErrInvalid with %q", url, err, hint)
		}
	}
}

// A shell hands a password over by a pipe, as in password-file=<(command): it can be read
// once, and there are many connections.
func TestParse_ReadsAPipeOnce(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	file := fmt.Sprintf("/dev/fd/%d", r.Fd())
	_, err = os.Stat(file)
	skip.Unless(t, err == nil, "pipes that have names")
	_, _ = w.WriteString("s3cret\n")
	_ = w.Close()
	c, err := Parse("redis://h?password-file=" + file)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		client, server := net.Pipe()
		go func() {
			asked := make([]byte, 1<<10)
			n, _ := server.Read(asked)
			if strings.Contains(string(asked[:n]), "s3cret") {
				_, _ = server.Write([]byte("+OK\r\n"))
			}
			_ = server.Close()
		}()
		if err := c.login.authenticate(t.Context(), client); err != nil {
			t.Error(err)
		}
	}
}
