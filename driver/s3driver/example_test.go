package s3driver_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold"
	"github.com/leasehold-go/leasehold/driver/s3driver"
	"github.com/leasehold-go/leasehold/driver/s3driver/internal/fakes3"
)

// A program keeps its locks in the bucket that it already has.
func Example() {
	server := httptest.NewServer(fakes3.New().Front(0)) // in place of S3
	defer server.Close()
	store, err := s3driver.Open("s3://locks?endpoint=" + url.QueryEscape(server.URL))
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := leasehold.New(store)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() // and the store
	lease, err := client.Mutex("nightly").TryLock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lease.Key(), lease.Release())
	// Output: nightly <nil>
}

// The address of a compatible store stands in the URL, and credentials in the environment.
func ExampleOpen() {
	store, err := s3driver.Open("s3://locks/billing?endpoint=https://minio.example:9000&timeout=2s")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.Close())
	_, err = s3driver.Open("s3://key:secret@locks?region=eu-central-1")
	fmt.Println(err)
	// Output:
	// <nil>
	// s3driver: store URL s3://***@locks: credentials do not belong into the URL: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE: invalid
}

// The driver uses a client of the application. Locks of two prefixes are independent.
func ExampleNew() {
	ctx := context.Background()
	server := httptest.NewServer(fakes3.New().Front(0)) // in place of S3
	defer server.Close()
	cfg, err := config.LoadDefaultConfig(ctx, config.WithRegion("us-east-1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	bucket := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.BaseEndpoint, o.UsePathStyle = aws.String(server.URL), true // of the example's server
	})
	for _, prefix := range []string{"billing/locks", "reports/locks"} {
		store, err := s3driver.New(bucket, "locks", s3driver.WithPrefix(prefix), s3driver.WithTimeout(2*time.Second))
		if err != nil {
			fmt.Println(err)
			return
		}
		client, err := leasehold.New(store)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer client.Close() // closes the store, too, but not the bucket's client
		_, err = client.Mutex("month").TryLock(ctx)
		fmt.Println(prefix, err)
	}
	// Output:
	// billing/locks <nil>
	// reports/locks <nil>
}

// An operator looks at a bucket before programs rely on it.
func ExampleDriver_Check() {
	server := httptest.NewServer(fakes3.New().Front(0)) // in place of S3
	defer server.Close()
	store, err := s3driver.Open("s3://locks?endpoint=" + url.QueryEscape(server.URL))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	report, err := store.Check(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, f := range report.Findings[2:] {
		fmt.Printf("%s: %s\n", f.Check, f.What)
	}
	// Output:
	// conditional writes: the store writes and refuses as conditions demand, also at the same time
	// conditional deletes: the store deletes as conditions demand
	// versioning: the bucket keeps no old versions
	// lifecycle: no rule deletes records
	// replication: the bucket is not replicated
	// object lock: the bucket has no default retention
}
