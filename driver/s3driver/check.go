package s3driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/doctor"
)

// Check implements [driver.Checker]. It makes about 80 requests. Without the rights
// s3:GetBucketVersioning, s3:GetLifecycleConfiguration, s3:GetReplicationConfiguration and
// s3:GetBucketObjectLockConfiguration the rows about these ask for the right.
func (d *Driver) Check(ctx context.Context) (driver.Report, error) {
	c := &checkup{bucket: d.bucket, ctx: ctx}
	if err := c.clock(); err != nil {
		return c.Report, unavailable(err)
	}
	p, err := c.prove(ctx)
	if err != nil && !errors.Is(err, driver.ErrPermanent) {
		return c.Report, err
	}
	if err != nil {
		c.Found(driver.Unsafe, "conditional writes", err.Error(), "a lock could be granted to several callers, so every request is refused", "")
		return c.Report, nil
	}
	winners, err := c.race()
	if err != nil {
		return c.Report, unavailable(err)
	}
	c.Judge("conditional writes",
		doctor.If(winners > 1, driver.Unsafe, fmt.Sprintf("of simultaneous writes with one condition the store has acknowledged %d", winners),
			"it looks and writes in two steps, so two callers may be granted one lock", "take another store"),
		doctor.Good("the store writes and refuses as conditions demand, also at the same time"))
	c.Judge("conditional deletes",
		doctor.If(!p.deletes, driver.Notice, "the store does not delete by a condition", "each name that was ever locked leaves an empty object",
			"if these are too many, delete the empty objects below "+c.prefix+"/ while no program uses the locks"),
		doctor.Good("the store deletes as conditions demand"))
	c.versioning()
	c.lifecycle()
	c.replication()
	c.objectLock()
	return c.Report, nil
}

// checkup is one look at a bucket.
type checkup struct {
	doctor.Checkup
	*bucket
	ctx context.Context
}

// clock compares the store's clocks with ours. A Date may be up to a second old.
func (c *checkup) clock() error {
	const readings = 5
	var least, most time.Duration
	for i := range readings {
		r := c.request(c.ctx)
		before := time.Now()
		_, _, _, err := c.get(r, c.object("\x01clock"))
		took := time.Since(before)
		r.cancel()
		if err != nil {
			return err
		}
		date, err := r.date()
		if err != nil {
			return err
		}
		ahead := date.Add(time.Second / 2).Sub(before.Add(took / 2))
		if i == 0 {
			least, most = ahead, ahead
		}
		least, most = min(least, ahead), max(most, ahead)
	}
	differ := fmt.Sprintf("the Dates of %d answers differ by %v more than they should", readings, (most - least).Round(time.Second/10))
	c.Judge("clocks of the store",
		doctor.If(most-least > skew+time.Second, driver.Unsafe, differ, "a lease can end before its holder expects, and two may hold one lock",
			"synchronise the clocks of the store's servers"),
		doctor.Good(fmt.Sprintf("agree to within %v", (most-least).Round(time.Second/10))))
	const bearable = 10 * time.Second
	ours := fmt.Sprintf("the store's clock differs from ours by %v", max(most.Abs(), least.Abs()).Round(time.Second/10))
	c.Judge("clock",
		doctor.If(max(most.Abs(), least.Abs()) > bearable, driver.Warning, ours,
			"tokens are made from it, and the store refuses requests of a clock that is 15 minutes wrong", "synchronise the clocks"),
		doctor.Good(ours))
	return nil
}

// race returns how many of several simultaneous writes the store acknowledges that have one
// condition.
func (c *checkup) race() (winners int, err error) {
	const rounds, writers = 5, 8
	t := &trial{bucket: c.bucket, ctx: c.ctx, object: c.probeName()}
	defer t.clean()
	for round := range rounds {
		etag := t.put("", fmt.Sprint(round), "an object that is missing", http.StatusOK)
		tries := make([]trial, writers)
		var all sync.WaitGroup
		for i := range tries {
			tries[i] = trial{bucket: c.bucket, ctx: c.ctx, object: t.object, err: t.err}
			all.Go(func() {
				if tries[i].write(etag, fmt.Sprint(round, ".", i)) == http.StatusConflict {
					tries[i].err = nil // it has lost
				}
			})
		}
		all.Wait()
		won := 0
		for i := range tries {
			if err = cmp.Or(err, tries[i].err); tries[i].etag != "" {
				won++
			}
		}
		winners = max(winners, won)
		t.clean()
	}
	return winners, cmp.Or(t.err, err)
}

// setting judges a part of the bucket's configuration. A store without that part is good.
func (c *checkup) setting(check, right string, read func(*request) error, rows func() []doctor.Row) {
	r := c.request(c.ctx)
	defer r.cancel()
	err := read(r)
	code := r.code(err)
	unset := strings.HasPrefix(code, "NoSuch") || strings.HasSuffix(code, "NotFoundError") || r.status == http.StatusNotImplemented || code == "MethodNotAllowed"
	if err != nil && !unset {
		c.Found(driver.Notice, check, "could not be read: "+r.explain(err).Error(), "it may make locks unsafe or costly", "allow "+right)
		return
	}
	c.Judge(check, rows()...)
}

func (c *checkup) versioning() {
	var out *s3.GetBucketVersioningOutput
	c.setting("versioning", "s3:GetBucketVersioning", func(r *request) (err error) {
		out, err = c.client.GetBucketVersioning(r.ctx, &s3.GetBucketVersioningInput{Bucket: &c.name}, r.apply)
		return err
	}, func() []doctor.Row {
		return []doctor.Row{
			doctor.If(out != nil && out.Status == types.BucketVersioningStatusEnabled, driver.Warning, "the bucket keeps old versions",
				"each acquisition, renewal and release leaves one, which is paid for", "take a bucket without versions, or expire noncurrent versions after a day"),
			doctor.Good("the bucket keeps no old versions"),
		}
	})
}

func (c *checkup) lifecycle() {
	var out *s3.GetBucketLifecycleConfigurationOutput
	c.setting("lifecycle", "s3:GetLifecycleConfiguration", func(r *request) (err error) {
		out, err = c.client.GetBucketLifecycleConfiguration(r.ctx, &s3.GetBucketLifecycleConfigurationInput{Bucket: &c.name}, r.apply)
		return err
	}, func() []doctor.Row {
		rule := c.expiring(out)
		return []doctor.Row{
			doctor.If(rule != "", driver.Warning, fmt.Sprintf("the rule %q deletes objects below %s/", rule, c.prefix),
				"a held lock can be deleted, and the mark of a member of a quorum", "leave the prefix out of the rule"),
			doctor.Good("no rule deletes records"),
		}
	})
}

// expiring returns the name of a rule that deletes records.
func (c *checkup) expiring(out *s3.GetBucketLifecycleConfigurationOutput) string {
	if out == nil {
		return ""
	}
	for _, rule := range out.Rules {
		prefix := aws.ToString(rule.Prefix) //nolint:staticcheck // of old rules
		if f := rule.Filter; f != nil {
			prefix += aws.ToString(f.Prefix)
			if f.And != nil {
				prefix += aws.ToString(f.And.Prefix)
			}
		}
		e := rule.Expiration
		deletes := e != nil && (e.Days != nil || e.Date != nil)
		if ours := c.prefix + "/"; deletes && rule.Status == types.ExpirationStatusEnabled && (strings.HasPrefix(ours, prefix) || strings.HasPrefix(prefix, ours)) {
			return aws.ToString(rule.ID)
		}
	}
	return ""
}

func (c *checkup) replication() {
	var out *s3.GetBucketReplicationOutput
	c.setting("replication", "s3:GetReplicationConfiguration", func(r *request) (err error) {
		out, err = c.client.GetBucketReplication(r.ctx, &s3.GetBucketReplicationInput{Bucket: &c.name}, r.apply)
		return err
	}, func() []doctor.Row {
		replicated := out != nil && out.ReplicationConfiguration != nil && len(out.ReplicationConfiguration.Rules) > 0
		return []doctor.Row{
			doctor.If(replicated, driver.Warning, "the bucket is replicated",
				"a replica is later, and a lock in it excludes no holder here: two buckets are two stores", "let all programs use this bucket, and no program the replica"),
			doctor.Good("the bucket is not replicated"),
		}
	})
}

func (c *checkup) objectLock() {
	var out *s3.GetObjectLockConfigurationOutput
	c.setting("object lock", "s3:GetBucketObjectLockConfiguration", func(r *request) (err error) {
		out, err = c.client.GetObjectLockConfiguration(r.ctx, &s3.GetObjectLockConfigurationInput{Bucket: &c.name}, r.apply)
		return err
	}, func() []doctor.Row {
		retains := out != nil && out.ObjectLockConfiguration != nil && out.ObjectLockConfiguration.Rule != nil
		return []doctor.Row{
			doctor.If(retains, driver.Unsafe, "the bucket retains every version", "old records cannot be deleted, and the store may refuse to write",
				"take a bucket without a default retention"),
			doctor.Good("the bucket has no default retention"),
		}
	})
}
