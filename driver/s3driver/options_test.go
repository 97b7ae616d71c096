package s3driver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/driver"
)

func TestOpen_TakesTheFormsOfAURL(t *testing.T) {
	for rawURL, want := range map[string]struct {
		prefix, region string
		pathStyle      bool
		timeout        time.Duration
	}{
		"s3://bucket?region=eu-central-1":                                   {"leasehold", "eu-central-1", false, 3 * time.Second},
		"s3://bucket/?region=x":                                             {"leasehold", "x", false, 3 * time.Second},
		"s3://bucket/a/b/?region=x&timeout=500ms":                           {"a/b", "x", false, 500 * time.Millisecond},
		"s3://bucket?endpoint=http://127.0.0.1:9000":                        {"leasehold", "us-east-1", true, 3 * time.Second},
		"s3://my.bucket?endpoint=https%3A%2F%2Fh&path-style=false&region=r": {"leasehold", "r", false, 3 * time.Second},
		"s3://bucket?region=x&path_style=true":                              {"leasehold", "x", true, 3 * time.Second},
	} {
		d, err := Open(rawURL)
		if err != nil {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		o := d.bucket.client.Options()
		if b := d.bucket; b.prefix != want.prefix || o.Region != want.region || o.UsePathStyle != want.pathStyle || b.timeout != want.timeout {
			t.Errorf("%s: %q, %q, %t, %v; want %+v", rawURL, b.prefix, o.Region, o.UsePathStyle, b.timeout, want)
		}
		noError(t, d.Close())
	}
}

func TestOpen_RefusesAWrongURLAndShowsNoSecret(t *testing.T) {
	for rawURL, reason := range map[string]string{
		"bucket":                                               "no scheme",
		"s3:bucket":                                            "has to follow",
		"http://bucket":                                        "want a URL such as",
		"s3://AKIA:hidden@bucket?region=x":                     "AWS_ACCESS_KEY_ID",
		"s3://AKIA:hid/den@bucket?region=x":                    "",
		"s3://b?region=x":                                      "3 to 63",
		"s3://bucket":                                          "AWS_REGION",
		"s3://bucket?region=x&colour=red":                      "colour",
		"s3://bucket?region=x&timeout=fast":                    "timeout",
		"s3://bucket?region=x&timeout=1ms":                     "between 100ms and 1m0s",
		"s3://bucket?region=x&path-style=maybe":                "path-style",
		"s3://bucket/a//b?region=x":                            "prefix",
		"s3://bucket/../b?region=x":                            "prefix",
		"s3://bucket/ä?region=x":                               "",
		"s3://bucket?endpoint=minio:9000":                      "endpoint is not a URL",
		"s3://bucket?endpoint=https://AKIA:hidden@minio":       "",
		"s3://bucket?endpoint=https%3A%2F%2FAKIA%3Ahidden%40h": "endpoint is not a URL",
	} {
		d, err := Open(rawURL)
		if d != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", rawURL, err)
			continue
		}
		if strings.Count(err.Error(), ": invalid") != 1 {
			t.Errorf("%s: %v", rawURL, err)
		}
		if text := err.Error(); !strings.Contains(text, reason) || strings.Contains(text, "hid") || strings.Contains(text, "AKIA") {
			t.Errorf("%s: %v; want %q", rawURL, err, reason)
		}
	}
	t.Setenv("AWS_PROFILE", "absent")
	if _, err := Open("s3://bucket?region=x"); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a missing profile: %v", err)
	}
}

// TestOpen_UsesTheEndpointOfTheEnvironment checks that the bucket is no part of its host's name.
func TestOpen_UsesTheEndpointOfTheEnvironment(t *testing.T) {
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "https://minio.example:9000")
			for rawURL, want := range map[string]bool{"s3://bucket?region=x": true, "s3://bucket?region=x&path-style=false": false} {
				d, err := Open(rawURL)
				noError(t, err)
				defer d.Close()
				o := d.bucket.client.Options()
				if o.UsePathStyle != want || o.BaseEndpoint == nil || *o.BaseEndpoint != "https://minio.example:9000" {
					t.Errorf("%s: %v, path style is %t", rawURL, o.BaseEndpoint, o.UsePathStyle)
				}
			}
		})
	}
}

func TestNew_RefusesWrongArguments(t *testing.T) {
	client := s3.New(s3.Options{Region: "x"})
	for name, open := range map[string]func() (*Driver, error){
		"no client":   func() (*Driver, error) { return New(nil, "bucket") },
		"no bucket":   func() (*Driver, error) { return New(client, "") },
		"no prefix":   func() (*Driver, error) { return New(client, "bucket", WithPrefix("")) },
		"long prefix": func() (*Driver, error) { return New(client, "bucket", WithPrefix(strings.Repeat("a", 201))) },
		"no timeout":  func() (*Driver, error) { return New(client, "bucket", WithTimeout(0)) },
	} {
		if d, err := open(); d != nil || !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
