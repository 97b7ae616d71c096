package browsertest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/leasehold-go/leasehold/driver"
	"github.com/leasehold-go/leasehold/driver/memdriver"
	"github.com/leasehold-go/leasehold/server"
	"github.com/leasehold-go/leasehold/server/auth"
)

func TestPage_TableShowsWhoHoldsAndWhoWaits(t *testing.T) {
	v := start(t, memdriver.New())
	v.take(driver.Request{Key: "orders/42", ID: "A", Owner: "worker-7:4711", Since: time.Now().Add(-12 * time.Minute)})
	v.take(driver.Request{Key: "orders/42", ID: "B", Owner: "worker-8:1", Since: time.Now().Add(-5 * time.Minute), TicketTTL: time.Hour})
	for i := range 2 {
		v.take(driver.Request{Key: "gpu", ID: fmt.Sprint("G", i), Owner: "job/QNABKNCE", Mode: driver.Shared, Limit: 3, Weight: 2 - i, Labels: run("db3", "1290", "train.sh")})
	}
	p := open(t, v.url, 1280, 800)
	for _, text := range []string{"worker-7 pid 4711", "12 min", "59 min", "mutex", "5 min"} {
		p.rowSays("orders/42", text)
	}
	p.rowSays("gpu", "semaphore 3 of 3")
	p.rowSays("gpu", "job train.sh db3 pid 1290 places 0, 1")
	p.rowSays("gpu", "pid 1290 place 2")
	p.says("2 locks")
	p.clean()
}

// unsafe is a store that reports that its locks are unsafe.
type unsafe struct{ *memdriver.Driver }

func (unsafe) Check(context.Context) (driver.Report, error) {
	var r driver.Report
	r.Add(driver.Unsafe, "eviction", "maxmemory-policy is allkeys-lru", "a lock that is held may be thrown away", "set noeviction")
	return r, nil
}

func TestPage_AnUnsafeStoreIsToldAboveTheTableAndAboveALock(t *testing.T) {
	v := start(t, unsafe{memdriver.New()})
	v.take(driver.Request{Key: "k", ID: "A", Owner: "worker-7:4711"})
	p := open(t, v.url, 1280, 800)
	p.rowSays("k", "worker-7")
	p.says("The store is unsafe for locks")
	p.says("a lock that is held may be thrown away. Set noeviction.")
	p.judge("the table")
	js[any](p, `location.hash = "#/lock/k", null`)
	p.until("the queue of the lock", `document.querySelector("#h-queue")`)
	p.says("a lock that is held may be thrown away. Set noeviction.")
	p.clean()
}

func TestPage_HandOverIsSeenWithoutAReload(t *testing.T) {
	v := start(t, memdriver.New())
	p := open(t, v.url, 1280, 800)
	p.says("No lock is held")
	p.says("leasehold run --store " + strings.TrimSuffix(v.url, "/") + " first -- sleep 60")
	js[any](p, `window.same = true, null`)
	if code, text := v.ask("POST", "v1/locks/k", `{"leaseId":"a","owner":"first"}`); code != 201 {
		t.Fatal(code, text)
	}
	p.rowSays("k", "first")
	granted := make(chan int, 1)
	go func() {
		code, _ := v.ask("POST", "v1/locks/k", `{"leaseId":"b","owner":"second","waitMs":60000,"ttlMs":600000}`)
		granted <- code
	}()
	p.until("the queue", row("k")+"?.querySelector('.count').innerText.trim() === '1'")
	v.ask("DELETE", "v1/locks/k/leases/a", "")
	if code := <-granted; code != 201 {
		t.Fatal(code)
	}
	p.rowSays("k", "second")
	// A lock that was taken without the service is shown, too, and the longest held lock is first.
	v.take(driver.Request{Key: "elsewhere", ID: "c", Owner: "library", Since: time.Now().Add(-time.Hour)})
	p.rowSays("elsewhere", "library")
	p.until("the older one first", `document.querySelector("#locks tbody tr").dataset.key === "elsewhere"`)
	if !js[bool](p, `window.same === true`) {
		t.Error("the page was loaded again")
	}
	p.clean()
}

// TestPage_HistoryTellsOfWhatHappensWhileALockIsOpen: the history has events of requests to the
// service, and of requests to the store.
func TestPage_HistoryTellsOfWhatHappensWhileALockIsOpen(t *testing.T) {
	v := start(t, memdriver.New())
	v.take(driver.Request{Key: "k", ID: "a", Owner: "first"})
	p := open(t, v.url+"#/lock/k", 1280, 800)
	p.until("the holder", `document.querySelector(".holder")?.innerText.includes("first")`)
	p.says("Nothing has happened")
	tells := func(text string) {
		t.Helper()
		p.until(text, fmt.Sprintf(`document.querySelector("#events")?.innerText.includes(%q)`, text))
	}
	for _, id := range []string{"b", "c"} {
		v.take(driver.Request{Key: "k", ID: id, Owner: "waiter-" + id, TicketTTL: time.Hour})
		tells("waiter-" + id + " began to wait")
	}
	v.ask("DELETE", "v1/locks/k/leases/c", "")
	tells("waiter-c left the queue")
	v.ask("DELETE", "v1/locks/k/leases/a", "")
	tells("first released it after")
	v.take(driver.Request{Key: "k", ID: "b", Owner: "waiter-b", TTL: 3 * time.Second})
	tells("waiter-b got it after")
	tells("waiter-b lost it after")
	p.clean()
}

func TestPage_ARenewalIsSeenAtTheBar(t *testing.T) {
	v := start(t, memdriver.New())
	v.take(driver.Request{Key: "k", ID: "a", TTL: 10 * time.Minute})
	p := open(t, v.url, 1280, 800)
	p.rowSays("k", "9 min")
	v.ask("PUT", "v1/locks/k/leases/a", `{"ttlMs":3600000}`)
	p.rowSays("k", "59 min")
}

// withRoles returns an authenticator with three tokens: root, reader and worker.
func withRoles(t *testing.T) server.Option {
	t.Helper()
	file, err := auth.OpenFile(authFile(t))
	noErr(t, err)
	return server.WithAuthenticator(file)
}

func (p *tab) signIn(token string) {
	p.t.Helper()
	p.until("the field for a token", `document.querySelector("#token")`)
	p.do(chromedp.SendKeys("#token", token+kb.Enter, chromedp.ByQuery))
}

func TestPage_BreakShowsWhatHappensAndAsksForAReason(t *testing.T) {
	v := start(t, memdriver.New(), withRoles(t))
	v.take(driver.Request{Key: "orders/42", ID: "LEASE-A", Owner: "worker-7:4711"})
	v.take(driver.Request{Key: "orders/42", ID: "LEASE-B", Owner: "worker-8:1", TicketTTL: time.Hour})
	p := open(t, v.url+"#/lock/orders%2F42", 1280, 900)
	p.signIn("wrong")
	p.says("does not know this token")
	p.signIn("root")
	p.click(`document.querySelector(".holder button.danger")`)
	for _, text := range []string{"worker-7:4711 loses it", "LEASE-A", "worker-8:1 gets it next", "learns of it", "Only a resource that checks tokens", "logs who broke it"} {
		p.until(text, fmt.Sprintf(`document.querySelector("dialog[open]")?.innerText.includes(%q)`, text))
	}
	p.do(chromedp.SendKeys("#reason", kb.Enter, chromedp.ByQuery)) // a reason is required
	if holder := js[string](p, `document.querySelector(".holder h3").innerText`); holder != "worker-7 pid 4711" {
		t.Fatalf("broken without a reason: %s", holder)
	}
	p.do(chromedp.SendKeys("#reason", "host is gone"+kb.Enter, chromedp.ByQuery))
	p.says("Broken: the lease LEASE-A")
	p.until("the history", `document.querySelector("#events")?.innerText.includes("worker-7:4711 was broken: host is gone")`)
	text := v.log.String()
	for _, want := range []string{`"msg":"broken by force"`, `"lease":"LEASE-A"`, `"client":"root"`, `"reason":"host is gone"`, `"name":"orders/42"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not logged: %s", want, text)
		}
	}
	// The token is in memory only.
	if stored := js[string](p, `JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])`); stored != `[{},{},""]` {
		t.Errorf("stored: %s", stored)
	}
	p.do(chromedp.Reload())
	p.until("the field for a token", `document.querySelector("#token")`)
}

func TestPage_DoesNotSayThatLocksAreFreeWhichItMayNotShow(t *testing.T) {
	v := start(t, memdriver.New(), withRoles(t))
	v.take(driver.Request{Key: "k", ID: "A", Owner: "worker-7:4711"})
	p := open(t, v.url, 1280, 800)
	p.signIn("worker")
	p.says("No lock that you may read is held")
}

func TestPage_BreakIsNotThereWithoutTheRight(t *testing.T) {
	for name, row := range map[string]struct {
		mode  server.PageMode
		token string
	}{
		"a reader": {server.PageFull, "reader"}, "a page that reads": {server.PageRead, "root"},
	} {
		t.Run(name, func(t *testing.T) {
			v := start(t, memdriver.New(), withRoles(t), server.WithPage(row.mode))
			v.take(driver.Request{Key: "orders/42", ID: "LEASE-A", Owner: "worker-7"})
			p := open(t, v.url+"#/lock/orders%2F42", 1280, 900)
			p.signIn(row.token)
			p.until("the holder", `document.querySelector(".holder")?.innerText.includes("worker-7")`)
			if n := js[int](p, `document.querySelectorAll("button.danger").length`); n != 0 {
				t.Errorf("%d ways to break", n)
			}
		})
	}
}

func TestPage_NamesAreTextWhateverIsInThem(t *testing.T) {
	v := start(t, memdriver.New())
	hostile := []string{
		`<script>window.hacked=1</script>`, `<img src=x onerror="window.hacked=1">`, `"><svg onload=window.hacked=1>`, `javascript:window.hacked=1`,
		"\u202egnp.exe/שלום", strings.Repeat("x", 512), "..", "a%2Fb", `a/../b?c=d&e#f%2F%00`, "-rf 'quoted' $(id)", "𝕌\u200b\u2066end", "__proto__", "constructor",
	}
	for i, key := range hostile {
		v.take(driver.Request{Key: key, ID: fmt.Sprint("L", i), Owner: key[:min(len(key), 200)], Labels: map[string]string{key: key}})
		v.take(driver.Request{Key: key, ID: fmt.Sprint("W", i), Owner: "<b>waiter</b>", TicketTTL: time.Hour})
	}
	p := open(t, v.url, 360, 800)
	p.until("all rows", fmt.Sprintf(`document.querySelectorAll("#locks tbody tr").length === %d && ![...document.querySelectorAll("#locks td")].some((c) => c.innerText.includes("not looked at"))`, len(hostile)))
	p.says("U+202E")
	for _, key := range hostile {
		js[any](p, fmt.Sprintf(`location.hash = "#/lock/" + encodeURIComponent(%s), null`, quoted(key)))
		p.until("its waiter", `document.querySelector("#queue")?.innerText.includes("<b>waiter</b>")`)
		p.until("a button to break", `document.querySelector(".holders button")`)
		shown := js[string](p, `[...document.querySelector("h1 bdi").childNodes].map((n) => n.nodeType === 3 ? n.data : String.fromCodePoint(parseInt(n.textContent.slice(2), 16))).join("")`)
		if shown != key {
			t.Errorf("%q is shown as %q", key, shown)
		}
		if wide := js[int](p, `document.documentElement.scrollWidth`); wide > 360 {
			t.Errorf("%.20q: %d pixels wide", key, wide)
		}
		js[any](p, `location.hash = "#/", null`)
		p.until("the table", `document.querySelector("#locks tbody tr")`)
	}
	if js[bool](p, `!!window.hacked || document.querySelector("main script, main img, main svg[onload]")`) {
		t.Error("a name has become a part of the page")
	}
	p.clean()
}

func TestPage_TwentyThousandLocks(t *testing.T) {
	v := start(t, memdriver.New())
	const n = 20_000
	for i := range n {
		v.take(driver.Request{Key: fmt.Sprintf("shop-%d/orders/%05d", i%7, i), ID: "a", Owner: "worker:1"})
	}
	p := open(t, v.url, 1280, 800)
	p.says("50 locks on this page")
	p.rowSays("shop-0/orders/00000", "worker")
	p.click(`[...document.querySelectorAll(".pages a")].find((a) => a.innerText === "Next page")`)
	p.rowSays("shop-0/orders/00350", "worker")
	p.click(`[...document.querySelectorAll(".pages a")].find((a) => a.innerText === "First page")`)
	p.rowSays("shop-0/orders/00000", "worker")
	p.do(chromedp.SendKeys("#search", "shop-6/orders/135", chromedp.ByQuery))
	p.until("some rows", `document.querySelectorAll("#locks tbody tr").length === 14`)
	p.rowSays("shop-6/orders/13579", "worker")
	p.clean()
}

func TestPage_TheConnectionIsLostAndComesBack(t *testing.T) {
	v := start(t, memdriver.New())
	v.take(driver.Request{Key: "before", ID: "a"})
	p := open(t, v.url, 1280, 800)
	p.rowSays("before", "mutex")
	p.until("live", `document.querySelector("#live").dataset.state === "live"`)
	v.fail()
	p.says("Connection lost: shown as of")
	p.rowSays("before", "mutex") // still shown
	v.take(driver.Request{Key: "meanwhile", ID: "a"})
	v.heal()
	p.rowSays("meanwhile", "mutex")
	p.until("live again", `document.querySelector("#live").dataset.state === "live"`)
}

// silent is a store that does not answer reads while it is away.
type silent struct {
	unsafe
	away atomic.Bool
}

func (s *silent) List(ctx context.Context, prefix, cursor string) ([]string, string, error) {
	if s.away.Load() {
		return nil, "", driver.ErrUnavailable
	}
	return s.unsafe.List(ctx, prefix, cursor)
}

func (s *silent) Inspect(ctx context.Context, key string) (driver.Snapshot, error) {
	if s.away.Load() {
		return driver.Snapshot{}, driver.ErrUnavailable
	}
	return s.unsafe.Inspect(ctx, key)
}

func (s *silent) Glance(ctx context.Context, key string) (driver.Snapshot, error) {
	return s.Inspect(ctx, key)
}

func TestPage_ASilentStoreIsInTheDotAndItsRoundTripIsUnknown(t *testing.T) {
	store := &silent{unsafe: unsafe{memdriver.New()}}
	v := start(t, store)
	day(v)
	p := open(t, v.url, 1280, 800)
	p.rowSays("orders/42", "mutex")
	p.until("live", `document.querySelector("#live").dataset.state === "live"`)
	store.away.Store(true)
	says := `document.querySelector("#live").innerText.startsWith("The store does not answer: shown as of")`
	p.until("the table of a silent store", says)
	p.until("everything is grey", `[".fill", ".key a"].every((s) => { const c = getComputedStyle(document.querySelector(s)); const rgb = (s === ".fill" ? c.backgroundColor : c.color).match(/\d+/g).slice(0, 3); return Math.max(...rgb) - Math.min(...rgb) < 30; })`)
	p.judge("the table of a store that is away")
	age := js[string](p, row("orders/42")+".querySelector('.age').innerText")
	time.Sleep(2100 * time.Millisecond) // a time that goes on would show two more seconds
	if after := js[string](p, row("orders/42")+".querySelector('.age').innerText"); after != age {
		t.Errorf("held for %s, and then %s", age, after)
	}
	js[any](p, `location.hash = "#/health", null`)
	p.until("the health of a silent store", `document.querySelector(".tiles") && `+says)
	p.until("no round trip is known", `[...document.querySelectorAll(".tiles div")].some((x) => x.innerText.startsWith("Round trip") && x.innerText.endsWith("–"))`)
	p.says("eviction: maxmemory-policy is allkeys-lru")
	p.judge("the health of a store that is away")
	store.away.Store(false)
	p.until("live again", `document.querySelector("#live").dataset.state === "live"`)
}

func TestPage_EverythingCanBeDoneByKeyboard(t *testing.T) {
	v := start(t, memdriver.New())
	v.take(driver.Request{Key: "orders/42", ID: "LEASE-A", Owner: "worker-7"})
	v.take(driver.Request{Key: "other", ID: "LEASE-B", Owner: "worker-8"})
	p := open(t, v.url, 1280, 800)
	p.rowSays("orders/42", "worker-7")
	// A key that is a command of the page does not write its character.
	p.do(input.DispatchKeyEvent(input.KeyRawDown).WithKey("/").WithCode("Slash").WithWindowsVirtualKeyCode(191))
	p.until("the focus in the search", `document.activeElement.id === "search"`)
	p.do(chromedp.KeyEvent("orders"))
	p.until("one row", `document.querySelectorAll("#locks tbody tr").length === 1`)
	p.tabTo(`document.activeElement.closest?.("#locks tbody a")`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("the button", `document.querySelector(".holder button.danger")`)
	p.tabTo(`document.activeElement.matches?.("button.danger")`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("the focus in the reason", `document.activeElement.id === "reason"`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until("the focus where it was", `!document.querySelector("dialog") && document.activeElement.matches("button.danger")`)
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until("the focus in the reason", `document.activeElement.id === "reason"`)
	p.do(chromedp.KeyEvent("stuck" + kb.Enter))
	p.says("Broken: the lease LEASE-A")
	p.clean()
}

// tabTo presses the tab key until the focus is where it should be, and can be seen there.
func (p *tab) tabTo(expression string) {
	p.t.Helper()
	for range 80 {
		p.do(chromedp.KeyEvent(kb.Tab))
		if js[bool](p, "!!("+expression+")") {
			if outline := js[string](p, `getComputedStyle(document.activeElement).outlineStyle`); outline == "none" {
				p.t.Errorf("the focus cannot be seen: %s", expression)
			}
			return
		}
	}
	p.t.Fatalf("the tab key does not lead to %s", expression)
}
