package redisroom_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/redistest"
)

// An existing connection stays authenticated; each new one reads the file again.
func TestRotate_NewConnectionsUseThePasswordThatStandsInTheFile(t *testing.T) {
	live.Test(t)
	for _, form := range []string{"single", "sentinel"} {
		t.Run(form, func(t *testing.T) {
			eachClient(t, func(t *testing.T, open func(string) store) {
				server := redistest.Start(t)
				watched := []*redistest.Server{server}
				if form == "sentinel" {
					s := redistest.StartSentinel(t)
					server, watched = s.Primary, []*redistest.Server{s.Primary, s.Sentinel}
				}
				file := filepath.Join(t.TempDir(), "password")
				write := func(password string) {
					noErr(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
				}
				accept := func(password string) {
					for _, s := range watched {
						noErr(t, s.Client().Do(background, "ACL", "SETUSER", "app", "on", "resetpass", ">"+password, "~*", "&*", "+@all").Err())
					}
				}
				cut := func() {
					for _, s := range watched {
						s.Client().Do(background, "CLIENT", "KILL", "USER", "app")
					}
				}
				write("one")
				accept("one")
				rawURL := "redis://app@" + server.Addr() + "?timeout=2s&password-file=" + file
				if form == "sentinel" {
					rawURL = "redis+sentinel://app@" + watched[1].Addr() + "?timeout=2s&master=" + redistest.PrimaryName + "&password-file=" + file +
						"&sentinel-username=app&sentinel-password-file=" + file
				}
				d := open(rawURL)
				acquire(t, d, request("k", "a"), driver.Granted)
				accept("two")
				acquire(t, d, request("before", "a"), driver.Granted)
				cut()
				eventually(t, "refused", func() bool { // the server is ahead of the file
					_, err := d.Acquire(background, request("between", "a"))
					if errors.Is(err, driver.ErrPermanent) {
						t.Errorf("%v, want an error that time heals", err)
					}
					return errors.Is(err, driver.ErrUnavailable) && strings.Contains(err.Error(), "WRONGPASS")
				})
				write("two")
				eventually(t, "renewed", func() bool {
					replies, errs := renewAll(d, []driver.Ref{lease("k", "a")})
					return errs[0] == nil && replies[0].State == driver.Granted
				})
				eventually(t, "granted", func() bool {
					reply, err := d.Acquire(background, request("after", "a"))
					return err == nil && reply.State == driver.Granted
				})
				write("three")
				fresh := open(rawURL)
				eventually(t, "a wrong password refused for good", func() bool {
					_, err := fresh.Acquire(background, request("wrong", "a"))
					return errors.Is(err, driver.ErrPermanent) && strings.Contains(err.Error(), "WRONGPASS")
				})
			})
		})
	}
}

func TestRotate_NewConnectionsUseTheCertificateThatStandsInTheFile(t *testing.T) {
	live.Test(t)
	server := redistest.StartTLS(t, true)
	files := server.Certificates()
	eachClient(t, func(t *testing.T, open func(string) store) {
		cert := filepath.Join(t.TempDir(), "cert.pem")
		write := func(text []byte) {
			noErr(t, os.WriteFile(cert, text, 0o600))
		}
		good, err := os.ReadFile(files.ClientCert)
		noErr(t, err)
		write(good)
		d := open(server.URL() + "?timeout=2s&" + url.Values{"ca": {files.CA}, "cert": {cert}, "key": {files.ClientKey}}.Encode())
		acquire(t, d, request(t.Name(), "a"), driver.Granted)
		write([]byte("being written"))
		server.Client().Do(background, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		eventually(t, "refused", func() bool {
			_, err := d.Acquire(background, request(t.Name(), "a"))
			return errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, driver.ErrPermanent) && strings.Contains(err.Error(), cert)
		})
		write(good)
		eventually(t, "granted", func() bool {
			_, err := d.Acquire(background, request(t.Name(), "a"))
			return err == nil
		})
	})
}
