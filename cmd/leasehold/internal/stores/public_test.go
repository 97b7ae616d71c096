package stores_test

import (
	"testing"

	"github.com/leasehold-go/leasehold/cmd/leasehold/internal/stores"
)

func TestPublic_HasNoPasswordHoweverItIsGiven(t *testing.T) {
	for rawURL, want := range map[string]string{
		"redis://u:s3cret@h:1/0?prefix=a:":                                  "redis://u@h:1/0?prefix=a:",
		"redis://:s3cret@h":                                                 "redis://h",
		"redis://u:s3@cret@h":                                               "redis://u@h",
		"quorum+redis://:s3cret@a:1,b:2,c?max-ttl=1m":                       "quorum+redis://a:1,b:2,c?max-ttl=1m",
		"redis+sentinel://h/?master=m&sentinel-password=s3cret":             "redis+sentinel://h/?master=m",
		"redis+sentinel://h/?sentinel_password=s3cret":                      "redis+sentinel://h/",
		"nats://s3cret@a,b/locks":                                           "nats://a,b/locks",
		"quorum+nats://s3cret@a,b,c/locks":                                  "quorum+nats://a,b,c/locks",
		"tls://u:s3cret@a,b?replicas=3":                                     "tls://u@a,b?replicas=3",
		"etcds://u:s3cret@a,b/locks?ca=y":                                   "etcds://u@a,b/locks?ca=y",
		"https://:s3cret@locks.example.com/path":                            "https://locks.example.com/path",
		"postgres://h/db?password=s3cret&sslpassword=s3cret":                "postgres://h/db",
		"postgres://h/db?listen=postgres%3A%2F%2Fu%3As3cret%40h%2Fdb":       "postgres://h/db?listen=postgres%3A%2F%2Fu%40h%2Fdb",
		"postgres://h/db?listen=host%3Dh+password%3Ds3cret":                 "postgres://h/db",
		"postgres://h/db?listen=host%3Dh+password+%3D+s3cret":               "postgres://h/db",
		"postgres://h/db?listen=host%3Dh+password%3Ds3c%3A%2F%2Fret":        "postgres://h/db",
		"postgres://h/db?listen=password%3D%27s3c+%3A%2F%2Fret%27+host%3Dh": "postgres://h/db",
		"quorum://?node=redis%3A%2F%2F%3As3cret%40h&node=redis%3A%2F%2Fi":   "quorum://?node=redis%3A%2F%2Fh&node=redis%3A%2F%2Fi",
	} {
		if got, secret := stores.Public(rawURL); got != want || !secret {
			t.Errorf("%s: %q (secret: %v), want %q", rawURL, got, secret, want)
		}
	}
	for rawURL, want := range map[string]string{
		"file:///var/lib/a@b:c":                             "file:///var/lib/a@b:c",
		"file:locks?mode=0770":                              "file:locks?mode=0770",
		"redis://u@h?password-file=/run/x&prefix=":          "redis://u@h?prefix=",
		"unix:///run/redis.sock?db=1":                       "unix:///run/redis.sock?db=1",
		"tls://h?creds=%2Fx&ca=y":                           "tls://h?ca=y",
		"https://h?token-file=/x":                           "https://h",
		"postgres://u@h/db?passfile=%2Fx&sslmode=none":      "postgres://u@h/db?sslmode=none",
		"postgres://u@h/db?listen=host%3Dh+passfile%3D%2Fx": "postgres://u@h/db",
		"postgres://u@h/db?listen=host%3Dh+user%3Du":        "postgres://u@h/db?listen=host%3Dh+user%3Du",
		"memory:":  "memory:",
		"nonsense": "nonsense",
	} {
		if got, secret := stores.Public(rawURL); got != want || secret {
			t.Errorf("%s: %q (secret: %v), want %q without a secret", rawURL, got, secret, want)
		}
	}
}
