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

// TestScreenshots makes the pictures of the documents, and with MORE of every part of the page.
func TestScreenshots(t *testing.T) {
	skip.Unless(t, *screenshots != "", "a directory, which make screenshots names")
	shoot := func(v *service, name, hash string, width, height int64, actions ...chromedp.Action) *tab {
		if hash == "" {
			v.take(driver.Request{Key: "orders/1450", ID: name, Owner: "worker-5:306", TTL: 30 * time.Second})
		}
		p := open(t, v.url+hash, width, height, actions...)
		p.until(hash, views[hash])
		time.Sleep(2500 * time.Millisecond) // the marks of changes have faded
		if hash == "" {
			p.until("a lease that is about to run out", "document.querySelector('#locks tbody tr').dataset.level === 'bad'")
		}
		p.picture(name)
		return p
	}
	v := start(t, memdriver.New())
	day(v)
	shoot(v, "page-locks", "", 1280, 720).clean()
	shoot(v, "page-lock", "#/lock/orders%2F42", 1280, 760).clean()
	if os.Getenv("MORE") == "" {
		return
	}
	for _, width := range []int64{360, 768, 1280, 2560} {
		for mode, actions := range map[string][]chromedp.Action{"light": nil, "dark": {dark()}} {
			name := func(of string) string { return fmt.Sprintf("%s-%d-%s", of, width, mode) }
			store := &silent{unsafe: unsafe{memdriver.New()}}
			v := start(t, store)
			p := open(t, v.url, width, 700, actions...)
			p.says("Take it")
			p.picture(name("empty"))
			day(v)
			for part, hash := range map[string]string{"locks": "", "lock": "#/lock/orders%2F42", "health": "#/health"} {
				p := shoot(v, name(part), hash, width, 1000, actions...)
				store.away.Store(true)
				p.until("stale", "document.body.className === 'stale'")
				p.picture(name("away-" + part))
				store.away.Store(false)
			}
		}
	}
}

// picture writes a picture of the tab.
func (p *tab) picture(name string) {
	p.t.Helper()
	var png []byte
	p.do(chromedp.CaptureScreenshot(&png))
	if err := os.WriteFile(filepath.Join(*screenshots, name+".png"), png, 0o644); err != nil {
		p.t.Fatal(err)
	}
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
	if _, err := v.store.(driver.Breaker).Break(v.t.Context(), "reports/daily", "REPORT", "host is gone"); err != nil {
		v.t.Fatal(err)
	}
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
