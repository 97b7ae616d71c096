package browsertest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/internal/test/skip"
)

var screenshots = flag.String("screenshots", "", "the directory into which make screenshots writes")

// TestScreenshots makes the pictures of the documents.
func TestScreenshots(t *testing.T) {
	skip.Unless(t, *screenshots != "", "a directory, which make screenshots names")
	v := start(t, memdriver.New())
	day(v)
	shoot := func(name, hash string, height int64) {
		if hash == "" {
			v.take(driver.Request{Key: "orders/1450", ID: name, Owner: "worker-5:306", TTL: 30 * time.Second})
		}
		p := open(t, v.url+hash, 1280, height)
		p.until(hash, views[hash])
		time.Sleep(2500 * time.Millisecond) // the marks of changes have faded
		if hash == "" {
			p.until("a lease that is about to run out", "document.querySelector('#locks tbody tr').dataset.level === 'bad'")
		}
		var png []byte
		p.do(chromedp.CaptureScreenshot(&png))
		noErr(t, os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644))
		p.clean()
	}
	shoot("page-locks", "", 720)
	shoot("page-lock", "#/lock/orders%2F42", 760)
}

// day fills the store with the locks of a usual day: a lock that is stuck, a queue, a semaphore
// that is full, readers, and many healthy locks.
func day(v *service) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	v.take(driver.Request{Key: "orders/42", ID: "F7Q2MZ5KXN4T", Owner: "worker-7:4711", TTL: 4 * time.Minute, Since: ago(12*time.Minute + 40*time.Second), Labels: map[string]string{"job": "charge", "rack": "3"}})
	for i, owner := range []string{"worker-2:902", "worker-9:118", "billing-1:77"} {
		v.take(driver.Request{Key: "orders/42", ID: fmt.Sprintf("WAIT%d", i), Owner: owner, TicketTTL: time.Hour, Since: ago(time.Duration(700-180*i) * time.Second)})
	}
	for i := range 4 {
		v.take(driver.Request{Key: "gpu", ID: fmt.Sprint("GPU", i), Owner: fmt.Sprintf("train-%d:2210", i), Mode: driver.Shared, Limit: 4, Since: ago(time.Duration(20+9*i) * time.Minute), TicketTTL: time.Hour})
	}
	for i := range 2 {
		v.take(driver.Request{Key: "gpu", ID: fmt.Sprint("GPUW", i), Owner: fmt.Sprintf("train-%d:2210", 4+i), Mode: driver.Shared, Limit: 4, Since: ago(3 * time.Minute), TicketTTL: time.Hour})
	}
	for i := range 3 {
		v.take(driver.Request{Key: "catalog", ID: fmt.Sprint("READ", i), Owner: fmt.Sprintf("shop-%d:8080", i), Mode: driver.Shared, Since: ago(time.Duration(2+i) * time.Second)})
	}
	v.take(driver.Request{Key: "accounts/ada", ID: "ADA1", Owner: "transfer-1:31", Since: ago(40 * time.Second)})
	v.take(driver.Request{Key: "accounts/bob", ID: "BOB1", Owner: "transfer-2:32", Since: ago(39 * time.Second)})
	v.take(driver.Request{Key: "accounts/ada", ID: "ADA2", Owner: "transfer-2:32", Since: ago(38 * time.Second), TicketTTL: time.Hour})
	v.take(driver.Request{Key: "accounts/bob", ID: "BOB2", Owner: "transfer-1:31", Since: ago(37 * time.Second), TicketTTL: time.Hour})
	v.take(driver.Request{Key: "nightly-backup", ID: "BACKUP", Owner: "db3:1290/QNABKNCE", Since: ago(94 * time.Minute), Labels: run("db3", "1290", "backup.sh")})
	v.take(driver.Request{Key: "scheduler", ID: "LEADER", Owner: "sched-a:1/DP7GY4JN", Labels: run("sched-a", "1", "scheduler"), TTL: 15 * time.Minute, Since: ago(6*time.Hour + 12*time.Minute)})
	v.take(driver.Request{Key: "reports/daily", ID: "REPORT", Owner: "cron-2:5120", LockDelay: time.Hour})
	v.breaks("reports/daily", "REPORT", "host is gone")
	for i := range 14 {
		v.take(driver.Request{Key: fmt.Sprintf("orders/%d", 1001+17*i), ID: fmt.Sprint("ORDER", i), Owner: fmt.Sprintf("worker-%d:%d", 1+i%6, 300+i), TTL: 10 * time.Minute, Since: ago(time.Duration(i*310) * time.Millisecond)})
	}
	for i := range 40 {
		v.take(driver.Request{Key: fmt.Sprintf("tenants/%s/invoices", []string{"acme", "globex", "initech", "umbrella"}[i%4]+fmt.Sprint(i)), ID: fmt.Sprint("TENANT", i), Owner: fmt.Sprintf("billing-%d:77", i%3), Since: ago(time.Duration(i) * time.Second)})
	}
}

// run returns the labels of leasehold run.
func run(host, pid, command string) map[string]string {
	return map[string]string{"leasehold.host": host, "leasehold.pid": pid, "leasehold.command": command}
}
