package browsertest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"github.com/leasehold-go/leasehold/driver/memdriver"
)

// authFile names three principals, each with its name as token.
func authFile(t *testing.T) string {
	t.Helper()
	principal := func(name, verbs string) string {
		return fmt.Sprintf(`{"name": %q, "tokens": ["sha256:%x"], "rights": [{"verbs": [%s], "prefix": ""}]}`,
			name, sha256.Sum256([]byte(name)), verbs)
	}
	text := fmt.Sprintf(`{"principals": [%s, %s, %s]}`,
		principal("root", `"acquire", "read", "break"`), principal("reader", `"read"`), principal("worker", `"acquire"`))
	path := filepath.Join(t.TempDir(), "auth.json")
	noErr(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// views holds the parts of the page, each with a condition that is true when it has been drawn.
var views = map[string]string{
	"":                       "document.querySelectorAll('#locks tbody tr').length > 20",
	"#/lock/orders%2F42":     "document.querySelector('#queue')",
	"#/health":               "document.querySelectorAll('.tiles div').length > 4",
	"#/?prefix=nothing-fits": "document.body.innerText.includes('No lock fits')",
}

func TestPage_FitsFromAPhoneToAWall(t *testing.T) {
	v := start(t, memdriver.New())
	day(v)
	for _, width := range []int64{360, 768, 1024, 1160, 1280, 1360, 2560} {
		// The tab is closed with its subtest: a browser has few connections to one service.
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			p := open(t, v.url, width, 900)
			for hash, drawn := range views {
				js[any](p, fmt.Sprintf("location.hash = %q, null", hash))
				p.until(drawn, drawn)
				if wide := js[int64](p, `document.documentElement.scrollWidth`); wide > width {
					t.Errorf("%s is %d pixels wide on a screen of %d", hash, wide, width)
				}
				// The table is not cut off at its side.
				if cut := js[int](p, `(() => { const l = document.querySelector(".list"); return l ? l.scrollWidth - l.clientWidth : 0; })()`); cut > 0 {
					t.Errorf("%s: %d pixels of the table are cut off on a screen of %d", hash, cut, width)
				}
			}
			p.clean()
		})
	}
}

// rules is a script that checks a part of the page against the rules for all parts, and returns
// the violations.
const rules = `(() => {
	const bad = [];
	const shown = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && !e.closest(".unseen, .skip");
	const what = (e) => e.outerHTML.slice(0, 120);
	if (!document.documentElement.lang) bad.push("the page has no language");
	if (!document.title) bad.push("the page has no title");
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) bad.push("the id " + id + " is there twice");
	for (const a of ["aria-labelledby", "aria-describedby", "for"])
		for (const e of document.querySelectorAll("[" + a + "]"))
			for (const id of e.getAttribute(a).split(" ")) if (!document.getElementById(id)) bad.push(a + " leads nowhere: " + what(e));
	if (document.querySelectorAll("h1").length !== 1) bad.push("there is not one h1");
	let level = 0;
	for (const e of document.querySelectorAll("h1, h2, h3, h4")) {
		const n = Number(e.tagName[1]);
		if (n > level + 1) bad.push("a heading leaves out a level: " + what(e));
		level = n;
	}
	for (const e of document.querySelectorAll("table")) {
		if (!e.caption) bad.push("a table without a caption");
		for (const th of e.querySelectorAll("th")) if (!th.scope) bad.push("a header without a scope: " + what(th));
	}
	for (const e of document.querySelectorAll("ul > *, ol > *")) if (e.tagName !== "LI") bad.push("a list with something else: " + what(e));
	for (const e of document.querySelectorAll("button, input, nav a")) {
		const box = e.getBoundingClientRect();
		if (shown(e) && (box.height < 24 || box.width < 24)) bad.push("too small to be hit: " + Math.round(box.width) + "x" + Math.round(box.height) + " " + what(e));
	}
	const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
	const rgba = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
	const light = ([r, g, b]) => [r, g, b].map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4).reduce((n, v, i) => n + v * [.2126, .7152, .0722][i], 0);
	const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
	const seen = new Set();
	for (const e of document.querySelectorAll("body *")) {
		if (!shown(e) || e.closest("svg, :disabled") || e.getAnimations().length || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		const a = light(rgba(getComputedStyle(e).color)), b = light(ground(e));
		const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
		const key = e.tagName + e.className + ratio.toFixed(2);
		if (ratio < 4.5 && !seen.has(key)) { seen.add(key); bad.push("contrast " + ratio.toFixed(2) + ": " + what(e)); }
	}
	return bad;
})()`

// TestPage_IsAccessible checks every part of the page, in light and dark, against rules about its
// elements, and against a rule about the tree of a screen reader: every control has a name.
func TestPage_IsAccessible(t *testing.T) {
	v := start(t, memdriver.New())
	day(v)
	for mode, actions := range map[string][]chromedp.Action{"light": nil, "dark": {dark()}} {
		t.Run(mode, func(t *testing.T) {
			p := open(t, v.url, 1280, 900, actions...)
			for hash, drawn := range views {
				js[any](p, fmt.Sprintf("location.hash = %q, null", hash))
				p.until(drawn, drawn)
				p.judge(hash)
			}
			js[any](p, `location.hash = "#/lock/orders%2F42", null`)
			p.click(`document.querySelector(".holder button.danger")`)
			p.until("the dialog", `document.querySelector("dialog[open]")`)
			p.judge("the dialog")
		})
	}
}

// judge checks the page in its present state.
func (p *tab) judge(where string) {
	p.t.Helper()
	for _, text := range js[[]string](p, rules) {
		p.t.Errorf("%q: %s", where, text)
	}
	type said struct {
		Value any `json:"value"`
	}
	var tree struct {
		Nodes []struct {
			Ignored bool `json:"ignored"`
			Role    said `json:"role"`
			Name    said `json:"name"`
		} `json:"nodes"`
	}
	p.do(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, "Accessibility.getFullAXTree", nil, &tree)
	}))
	named := []string{"button", "link", "textbox", "searchbox", "table", "dialog", "region", "image"}
	found := 0
	for _, n := range tree.Nodes {
		role, _ := n.Role.Value.(string)
		if n.Ignored || !slices.Contains(named, role) {
			continue
		}
		found++
		if name, _ := n.Name.Value.(string); strings.TrimSpace(name) == "" {
			p.t.Errorf("%q: a %s without a name", where, role)
		}
	}
	if found < 3 {
		p.t.Errorf("%q: only %d elements in the tree, which is too few for the page", where, found)
	}
}
