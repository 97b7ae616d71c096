package s3driver

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/roomdriver"
	"github.com/leasehold-go/leasehold/internal/check"
	"github.com/leasehold-go/leasehold/internal/storeurl"
)

// MinTTL is the shortest TTL of a lease. See the package documentation for the reason.
const MinTTL = 15 * time.Second

const (
	// step is the unit of the store's clock. The Date of an answer counts seconds. Longer steps
	// save writes: the renewals of a ticket within one step leave the record as it is.
	step = 2 * time.Second
	// skew is the greatest difference of two clocks of the store's servers that is harmless.
	skew = 3 * time.Second
	// margin is by how much the store keeps everything longer than its callers expect: a
	// duration that is measured by two readings of the clock may be too short by a step, and
	// by the difference of the two clocks.
	margin = step + skew
	// sweepEvery is the pause between two sweeps: each costs at least one request.
	sweepEvery = 10 * time.Minute
)

// Driver is a store in a bucket, with every kind of lock. It is made by [New] or [Open], and is
// safe for concurrent use. It has the methods of [driver.Driver], [driver.Watcher],
// [driver.Glancer], [driver.Breaker], [driver.Limited], [driver.Checker] and [driver.Marker].
//
// An error matches [driver.ErrInvalid] for a TTL below [MinTTL]. It matches
// [driver.ErrPermanent] if the bucket, a right or a feature of the store is missing, and
// [driver.ErrUnavailable] if the bucket is certainly unchanged. After any other error the
// outcome is unknown. A subscription never has an address: waiters poll.
type Driver struct {
	*rooms
	bucket *bucket
}

// rooms is the store over the table.
type rooms = roomdriver.Driver

var (
	_ driver.Driver  = (*Driver)(nil)
	_ driver.Limited = (*Driver)(nil)
	_ driver.Checker = (*Driver)(nil)
)

// New returns a store in a bucket that a client of the application reaches. It makes no request.
// The driver overrides the client's retries and checksums for its own requests. Close does not
// close the client. An error matches [driver.ErrInvalid].
func New(client *s3.Client, bucket string, opts ...Option) (*Driver, error) {
	o, err := newOptions(opts)
	if err == nil && client == nil {
		err = check.Error("the client is nil")
	}
	if err == nil {
		err = checkBucket(bucket)
	}
	if err != nil {
		return nil, fmt.Errorf("s3driver: %w", err)
	}
	return open(client, bucket, o), nil
}

// Open returns a store in the bucket that a URL names:
//
//	s3://bucket
//	s3://bucket/prefix?region=eu-central-1
//	s3://bucket/prefix?endpoint=https://minio.example:9000&timeout=2s
//
// Parameters are region, endpoint (the URL of a compatible store; or AWS_ENDPOINT_URL), path-style
// (true by default with an endpoint, otherwise false) and timeout. Credentials, and a region that the URL does not
// name, come from the sources of the AWS tools: environment, files of ~/.aws, web identity, container, machine.
// Open reads the files and makes no request. An error matches [driver.ErrInvalid], and contains no
// password.
func Open(url string, opts ...Option) (*Driver, error) {
	client, bucket, own, err := parse(url)
	if err != nil {
		return nil, fmt.Errorf("s3driver: %w", storeurl.Invalid(url, err))
	}
	d, err := New(client, bucket, append(own, opts...)...)
	if err != nil {
		return nil, err
	}
	d.bucket.own = true
	return d, nil
}

func open(client *s3.Client, name string, o options, opts ...roomdriver.Option) *Driver {
	b := &bucket{client: client, name: name, options: o}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	opts = append([]roomdriver.Option{roomdriver.WithSweep(sweepEvery), roomdriver.WithMargin(margin)}, opts...)
	return &Driver{rooms: roomdriver.New(table{roomdriver.FromSwapper(b), b}, opts...), bucket: b}
}

// Supports implements [driver.Limited]: it refuses a TTL below [MinTTL]. A TTL of 0 is unknown.
func (d *Driver) Supports(req driver.Request) error { return checkTTL(req.TTL) }

func checkTTL(ttl time.Duration) error {
	if ttl > 0 && ttl < MinTTL {
		return check.Errorf("TTL %v is below %v, the shortest that the clock of an object store can measure", ttl, MinTTL)
	}
	return nil
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, req driver.Request) (driver.Reply, error) {
	if err := checkTTL(req.TTL); err != nil {
		return driver.Reply{}, err
	}
	return d.rooms.Acquire(ctx, req)
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(ctx context.Context, refs []driver.Ref, each func(int, driver.Reply, error)) {
	var taken []driver.Ref
	var index []int
	for i, ref := range refs {
		if err := checkTTL(ref.TTL); err != nil {
			each(i, driver.Reply{}, err)
			continue
		}
		taken, index = append(taken, ref), append(index, i)
	}
	d.rooms.Renew(ctx, taken, func(i int, reply driver.Reply, err error) { each(index[i], reply, err) })
}
