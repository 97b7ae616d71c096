package s3driver

import (
	"net"
	"net/url"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
	"github.com/leasehold-go/leasehold/internal/test/ask"
)

// TestMain sets credentials, hides the machine's, and looks for goroutines that are left.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": fakes3.AccessKey, "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "",
		"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_S3": "",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// urlOf returns the URL of a bucket, with more options.
func urlOf(t testing.TB, endpoint, options string) string {
	t.Helper()
	return "s3://" + fakes3.Bucket + "?endpoint=" + url.QueryEscape(endpoint) + options
}

// openAt returns a driver on a server.
func openAt(t testing.TB, rawURL string, opts ...roomdriver.Option) *Driver {
	t.Helper()
	client, bucket, own, err := parse(rawURL)
	noError(t, err)
	o, err := newOptions(own)
	noError(t, err)
	d := open(client, bucket, o, opts...)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// listenAt listens at an address that was in use before.
func listenAt(t testing.TB, address net.Addr) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", address.String())
	noError(t, err)
	return l
}

var (
	noError  = ask.NoError
	acquire  = ask.Acquire
	release  = ask.Release
	holds    = ask.Holds
	findings = ask.Findings
	finds    = ask.Finds
)
