package natsdriver

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/internal/test/live"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

func TestCheck_FindsWhatMakesLocksUnsafe(t *testing.T) {
	url, bucket := one()
	js, err := jetstream.New(connect(t, url))
	noError(t, err)
	create := func(name string, change func(*jetstream.StreamConfig)) string {
		cfg := jetstream.StreamConfig{
			Name: "KV_" + name, Subjects: []string{"$KV." + name + ".>"}, MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew,
			AllowMsgTTL: true, AllowRollup: true,
		}
		change(&cfg)
		_, err := js.CreateStream(t.Context(), cfg)
		noError(t, err)
		return url + "/" + name
	}
	small := start(t, "max_payload: 64KB")
	warm(t, openURL(t, small.url()+"/?create=true"))
	for _, row := range []struct {
		check, url string
		severity   driver.Severity
		says       string
	}{
		{"version", create("sound", func(*jetstream.StreamConfig) {}), driver.Good, "2."},
		{"bucket", url + "/sound", driver.Good, "no limits"},
		{"storage", url + "/sound", driver.Notice, "sync_interval"},
		{"replicas", url + "/sound", driver.Notice, "--replicas=3"},
		{"clock", url + "/sound", driver.Good, "differs from ours"},
		{"record", url + "/sound", driver.Good, "1024 KB"},
		{"record", small.url(), driver.Warning, "max_payload"},
		{"bucket", url + "/none", driver.Unsafe, "create=true"},
		{"bucket", url + "/none?create=true", driver.Good, "first call"},
		{"storage", create("memory", func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }), driver.Unsafe, "restart"},
		{"storage", create("async", func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }), driver.Unsafe, "crash"},
		{"bucket", create("old", func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false }), driver.Unsafe, "--marker-ttl"},
		{"bucket", create("aging", func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }), driver.Unsafe, "--max-age=0"},
		{"bucket", create("dropping", func(c *jetstream.StreamConfig) {
			c.MaxMsgs, c.Discard = 10, jetstream.DiscardOld
		}), driver.Unsafe, "--discard=new"},
		{"bucket", create("limited", func(c *jetstream.StreamConfig) { c.MaxMsgs = 10 }), driver.Warning, "limits"},
		{"bucket", create("long", func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }), driver.Unsafe, "old revisions"},
		{"bucket", create("silent", func(c *jetstream.StreamConfig) { c.NoAck = true }), driver.Unsafe, "acknowledges no"},
		{"bucket", create("copy", func(c *jetstream.StreamConfig) {
			c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "KV_sound"}
		}), driver.Unsafe, "original"},
	} {
		finds(t, openURL(t, row.url), row.check, row.severity, row.says)
	}
	// The settings that can be used nevertheless are.
	for _, name := range []string{"memory", "aging", "dropping"} {
		d := openURL(t, url+"/"+name)
		acquire(t, d, mutex(bucket, "a"), driver.Granted)
		acquire(t, d, mutex(bucket, "b"), driver.Busy)
		release(t, d, bucket, "a")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := openURL(t, url).Check(ctx); err == nil {
		t.Error("the context has ended")
	}
}

func TestCheck_ComparesTheClocks(t *testing.T) {
	for ahead, want := range map[time.Duration]driver.Severity{
		0: driver.Good, -100 * time.Millisecond: driver.Good, time.Second: driver.Warning, -time.Second: driver.Warning,
	} {
		c := new(checkup)
		if c.clock(ahead, 10*time.Millisecond); c.Findings[0].Severity != want {
			t.Errorf("%v: %+v", ahead, c.Findings[0])
		}
	}
}

// A cluster of three serves with two servers, and not with one. It serves again when all are back.
func TestCheck_SeesAReplicaThatIsAway(t *testing.T) {
	live.Test(t)
	skip.Nightly(t, "the cluster needs seconds to notice it")
	c := startCluster(t)
	d := warm(t, openURL(t, c.url()+"?create=true&replicas=3&timeout=2s"))
	held := acquire(t, d, mutex("k", "a"), driver.Granted)
	replicas := func(severity driver.Severity) func() bool {
		return func() bool {
			report, err := d.Check(t.Context())
			return err == nil && len(report.Nodes) == 3 && slices.ContainsFunc(report.Findings, func(f driver.Finding) bool {
				return f.Check == "replicas" && f.Severity == severity
			})
		}
	}
	eventually(t, replicas(driver.Good))
	c[0].Kill()
	eventually(t, replicas(driver.Warning))
	warm(t, d)
	c[1].Kill()
	if reply, err := d.Acquire(t.Context(), mutex("other", "a")); err == nil && reply.State == driver.Granted {
		t.Error("one server of three grants a lock")
	}
	c[0].run()
	c[1].run()
	warm(t, d)
	if again := acquire(t, d, mutex("k", "a"), driver.Granted); again.Token != held.Token {
		t.Errorf("token %d, and then %d", held.Token, again.Token)
	}
}
