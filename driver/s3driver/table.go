package s3driver

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/leasehold-go/leasehold/driver/roomdriver"
)

// bucket is a roomdriver.Swapper. The version of a record is the ETag of its object. Equal records
// may have equal ETags: then the record is as it was before, and so is the state of the
// lock, its last token included. A missing object has no version at all. It could be missing
// again after it was there, but a record stays for an hour after its last token, and the store
// refuses a request with a signature that is older than a quarter of an hour.
//
// An empty object is a removed record, in a store that cannot delete by a condition.
type bucket struct {
	client *s3.Client
	name   string
	options

	own    bool        // the client is the driver's
	signed atomic.Bool // there were credentials for a request

	ctx    context.Context // of probes, until Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	probing sync.Mutex
	proof   *proof // the last probe, or nil
}

// table adds reads and sweeps to a Swapper.
type table struct {
	roomdriver.Table
	bucket *bucket
}

var (
	_ roomdriver.Reader  = table{}
	_ roomdriver.Sweeper = table{}
)

// Read implements [roomdriver.Reader].
func (t table) Read(ctx context.Context, key string) (record []byte, now time.Time, err error) {
	record, _, now, err = t.bucket.Load(ctx, key)
	return record, now, unavailable(err)
}

// Load implements [roomdriver.Swapper].
func (b *bucket) Load(ctx context.Context, key string) (record []byte, version string, now time.Time, err error) {
	r := b.request(ctx)
	defer r.cancel()
	return b.get(r, b.object(key))
}

// get reads an object. It returns no record if there is no object, or an empty one.
func (b *bucket) get(r *request, object string) (record []byte, version string, now time.Time, err error) {
	out, err := b.client.GetObject(r.ctx, &s3.GetObjectInput{Bucket: &b.name, Key: &object}, r.apply)
	switch {
	case err != nil && r.code(err) == "NoSuchKey":
		now, err = r.clock()
		return nil, "", now, err
	case err != nil:
		return nil, "", now, r.explain(err)
	}
	defer out.Body.Close()
	if record, err = io.ReadAll(out.Body); err != nil {
		return nil, "", now, err
	}
	if now, err = r.clock(); err != nil {
		return nil, "", now, err
	}
	if version = aws.ToString(out.ETag); version == "" {
		return nil, "", now, refusal("the store's answer has no ETag, so records cannot be replaced by a condition")
	}
	if len(record) == 0 {
		record = nil
	}
	return record, version, now, nil
}

// Swap implements [roomdriver.Swapper].
func (b *bucket) Swap(ctx context.Context, key, version string, next []byte) (ok bool, err error) {
	p, err := b.prove(ctx)
	if err != nil {
		return false, unavailable(err)
	}
	r := b.request(ctx)
	defer r.cancel()
	if next == nil && p.deletes {
		return r.outcome(b.remove(r, b.object(key), version))
	}
	_, err = b.put(r, b.object(key), version, next)
	return r.outcome(err)
}

// put writes an object if it has the version; with version "" the object must be missing.
func (b *bucket) put(r *request, object, version string, content []byte) (etag string, err error) {
	in := &s3.PutObjectInput{
		Bucket: &b.name, Key: &object, Body: bytes.NewReader(content), IfMatch: &version,
		ContentType: aws.String("application/octet-stream"), CacheControl: aws.String("no-store"),
	}
	if version == "" {
		in.IfMatch, in.IfNoneMatch = nil, aws.String("*")
	}
	out, err := b.client.PutObject(r.ctx, in, r.apply)
	if err != nil {
		return "", err
	}
	return aws.ToString(out.ETag), nil
}

// remove deletes an object if it has the version, and in any case if version is "".
func (b *bucket) remove(r *request, object, version string) error {
	in := &s3.DeleteObjectInput{Bucket: &b.name, Key: &object, IfMatch: &version}
	if version == "" {
		in.IfMatch = nil
	}
	_, err := b.client.DeleteObject(r.ctx, in, r.apply)
	return err
}

// memory is for how long the driver remembers a token: the default of roomdriver.
const memory = time.Hour

// pageSize bounds a page of List: each record costs a request. Sweeps read pages of pageMost.
const (
	pageSize = 200
	pageMost = 1000
)

// List implements [roomdriver.Table].
func (b *bucket) List(ctx context.Context, prefix, cursor string) (page roomdriver.Page, err error) {
	objects, next, now, err := b.objects(ctx, prefix, cursor, pageSize)
	if err != nil {
		return page, unavailable(err)
	}
	page.Now, page.Next = now, next
	var mu sync.Mutex
	err = b.each(ctx, objects, func(ctx context.Context, key string) error {
		if !strings.HasPrefix(key, prefix) {
			return nil
		}
		record, _, _, err := b.Load(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		if record != nil {
			page.Entries = append(page.Entries, roomdriver.Entry{Key: key, Record: record})
		}
		return err
	})
	return page, unavailable(err)
}

// objects returns a page of the objects with keys that may begin with prefix.
func (b *bucket) objects(ctx context.Context, prefix, cursor string, most int32) (objects []types.Object, next string, now time.Time, err error) {
	r := b.request(ctx)
	defer r.cancel()
	in := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: aws.String(b.start(prefix)), MaxKeys: &most}
	if cursor != "" {
		in.ContinuationToken = &cursor
	}
	out, err := b.client.ListObjectsV2(r.ctx, in, r.apply)
	if err != nil {
		return nil, "", now, r.explain(err)
	}
	if now, err = r.clock(); err != nil {
		return nil, "", now, err
	}
	if aws.ToBool(out.IsTruncated) {
		if next = aws.ToString(out.NextContinuationToken); next == "" {
			return nil, "", now, errors.New("the store's listing has no token for the next page")
		}
	}
	return out.Contents, next, now, nil
}

// Sweep implements [roomdriver.Sweeper]. A record that was written within the last hour is not
// read: nearly all of them remember a token for as long.
func (t table) Sweep(ctx context.Context, limit int) (removed int, err error) {
	var count atomic.Int64
	sweep := func(ctx context.Context, key string) error {
		if count.Load() >= int64(limit) {
			return nil
		}
		var over bool
		err := t.Update(ctx, key, func(record []byte, now time.Time) ([]byte, error) {
			end, forever, err := roomdriver.End(record)
			if over = err == nil && !forever && !end.After(now); over {
				return nil, nil
			}
			return record, nil // also a record that cannot be read
		})
		if err == nil && over {
			count.Add(1)
		}
		return err
	}
	for cursor := ""; ; {
		objects, next, now, err := t.bucket.objects(ctx, "", cursor, pageMost)
		if err != nil {
			return int(count.Load()), unavailable(err)
		}
		objects = slices.DeleteFunc(objects, func(o types.Object) bool { return now.Sub(aws.ToTime(o.LastModified)) < memory })
		for _, o := range objects { // of processes that ended during a probe
			if object := aws.ToString(o.Key); t.bucket.isProbe(object) {
				left := trial{bucket: t.bucket, ctx: ctx, object: object}
				left.clean()
			}
		}
		if err := t.bucket.each(ctx, objects, sweep); err != nil || next == "" {
			return int(count.Load()), err
		}
		cursor = next
	}
}

// Close implements [roomdriver.Table].
func (b *bucket) Close() error {
	b.probing.Lock() // a probe that begins now sees that the driver is closed
	b.cancel()
	b.probing.Unlock()
	b.work.Wait()
	if b.own {
		b.hangUp()
	}
	return nil
}

// hangUp closes the client's idle connections.
func (b *bucket) hangUp() {
	if c, ok := b.client.Options().HTTPClient.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// workers bounds the requests of one listing that are under way.
const workers = 16

// each calls f for the records of objects, several at a time. After an error it ends soon.
func (b *bucket) each(ctx context.Context, objects []types.Object, f func(ctx context.Context, key string) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for _, object := range objects {
		if key, ok := b.key(aws.ToString(object.Key)); ok && aws.ToInt64(object.Size) > 0 && ctx.Err() == nil {
			group.Go(func() error { return f(ctx, key) })
		}
	}
	return group.Wait()
}

// Names of objects consist of parts in base64url: they need no escaping in a URL or in XML, and no
// store takes them for a path with dots. A part is no longer than a file's name may be. A suffix
// distinguishes the last part from the name of a directory.
const (
	partSize = 200
	suffix   = ".lock"
)

// object returns the name of a record's object. A key of 540 bytes has a name of 729 bytes behind
// the prefix; a store takes 1024.
func (b *bucket) object(key string) string {
	return b.prefix + "/" + parts(base64.RawURLEncoding.EncodeToString([]byte(key))) + suffix
}

// start returns the beginning of the names of all records with keys that begin with prefix. Further
// names may begin so: base64 shows groups of three bytes.
func (b *bucket) start(prefix string) string {
	return b.prefix + "/" + parts(base64.RawURLEncoding.EncodeToString([]byte(prefix[:len(prefix)/3*3])))
}

// parts divides a text by slashes.
func parts(text string) string {
	var all strings.Builder
	for len(text) > partSize {
		all.WriteString(text[:partSize] + "/")
		text = text[partSize:]
	}
	return all.String() + text
}

// key returns the key of a record's object. ok is false for an object of another kind.
func (b *bucket) key(object string) (key string, ok bool) {
	text := strings.TrimSuffix(strings.TrimPrefix(object, b.prefix+"/"), suffix)
	raw, err := base64.RawURLEncoding.DecodeString(strings.ReplaceAll(text, "/", ""))
	return string(raw), err == nil && b.object(string(raw)) == object
}
