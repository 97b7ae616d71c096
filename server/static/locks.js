// The table of locks.

import { h, name, setText } from "./dom.js";
import { count, plural, span } from "./format.js";
import { poll, storeAnswers } from "./live.js";
import { commands, every, here, kind, leaseBar, lives, stale, tag, who } from "./parts.js";

// columns have a title and a class.
const columns = [["Lock", "key"], ["Held by", "held-by"], ["Held for", "number age"], ["Lease", "number lease"], ["Waiting", "number count"], ["Longest wait", "number wait"], ["Next", "next"]];

const address = (prefix, cursor) => {
	const q = new URLSearchParams({ ...(prefix && { prefix }), ...(cursor && { cursor }) }).toString();
	return "#/" + (q ? "?" + q : "");
};

// locks shows the table in an element. It returns what ends it.
export function locks(into, { query, known }) {
	let q = query;
	let stop = null;
	let timer = 0;
	let walk = ""; // the cursor of the first locks that fit, after pages of the list on which none does
	const rows = new Map(); // by name: the row as it was sent, and its element

	const search = h("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", placeholder: "Names that begin with", "aria-keyshortcuts": "/",
		oninput: () => {
			clearTimeout(timer);
			timer = setTimeout(() => turn(search.value, ""), 250);
		} });
	const summary = h("p", { class: "summary", id: "summary" });
	const news = h("p", { class: "notice bad", id: "news", hidden: true });
	const body = h("tbody", { role: "rowgroup" });
	const table = h("table", { role: "table", "aria-describedby": "summary", id: "locks" },
		h("caption", { class: "unseen" }, "Locks that are held or waited for: those in trouble first, then by the longest wait, then by the longest hold"),
		h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map(([title, of]) => h("th", { role: "columnheader", scope: "col", class: of }, title)))), body);
	const empty = h("p", {});
	const start = h("div", { class: "start", hidden: true }, h("p", {}, "Take the first one, and wait for it in another terminal:"), h("div", {}));
	const none = h("div", { class: "empty", id: "empty", hidden: true }, empty, start);
	const first = h("a", { hidden: true, onclick: () => q.get("cursor") || follow(q) }, "First page");
	const next = h("a", { hidden: true }, "Next page");
	const pages = h("nav", { class: "pages", "aria-label": "Pages", hidden: true }, first, next);

	into.append(
		h("h1", { class: "unseen" }, "Locks"),
		h("div", { class: "tools" }, h("label", { class: "search" }, h("span", { class: "unseen" }, "Names that begin with"), search), summary),
		news, h("div", { class: "list" }, table, none, pages));

	// turn shows other locks in place of these.
	function turn(prefix, cursor) {
		history.replaceState(null, "", address(prefix, cursor));
		follow(new URLSearchParams(location.hash.split("?")[1]));
	}

	function follow(now) {
		q = now;
		if (document.activeElement !== search) search.value = q.get("prefix") || "";
		setText(empty, "Looking…");
		start.hidden = true;
		none.hidden = rows.size > 0;
		if (stop) stop();
		walk = "";
		stop = poll(() => "v1/overview" + address(q.get("prefix"), walk || q.get("cursor")).slice(2), 1000, shown, (problem) => {
			news.hidden = false;
			setText(news, "The locks cannot be shown: " + problem.message + ".");
		});
	}

	function shown(view) {
		known(view.principal, view.mode);
		storeAnswers(!view.rows.some((row) => row.failed));
		news.hidden = true;
		if (!view.rows.length) {
			walk = view.cursor || ""; // from the end, all begins again
			if (walk) return 50;
		}
		const at = performance.now();
		for (const row of view.rows) {
			const old = rows.get(row.key);
			const entry = old || { element: h("tr", { role: "row" }), life: lives() };
			entry.row = row;
			entry.at = at - row.agoMs;
			// A row is drawn again only when more than its times has changed, so that a selection lasts.
			const drawn = JSON.stringify(row, (k, v) => (/Ms$/.test(k) || k === "token" ? undefined : v));
			if (entry.drawn === drawn) tick(entry);
			else draw(entry);
			entry.drawn = drawn;
			if (old && old.mark !== mark(row)) blink(entry.element);
			entry.mark = mark(row);
			rows.set(row.key, entry);
		}
		const keys = new Set(view.rows.map((row) => row.key));
		for (const key of rows.keys()) {
			if (!keys.has(key)) rows.delete(key);
		}
		arrange();
		const waiting = view.rows.reduce((n, row) => n + row.queue, 0);
		setText(summary, `${plural(rows.size, "lock")}${q.get("cursor") || walk || view.cursor ? " on this page" : ""} · ${waiting ? count(waiting) + " waiting" : "nobody waits"}`);
		none.hidden = rows.size > 0;
		table.hidden = rows.size === 0;
		welcome(!rows.size && !q.get("prefix") && !q.get("cursor"));
		setText(empty, q.get("prefix") || q.get("cursor") ? "No lock fits." : view.principal ? "No lock that you may read is held or waited for." : "No lock is held, and nobody waits.");
		for (const [link, cursor, is] of [[first, "", q.get("cursor") || walk], [next, view.cursor, view.cursor]]) {
			link.hidden = !is;
			link.href = address(q.get("prefix"), cursor);
		}
		pages.hidden = first.hidden && next.hidden;
	}

	// welcome shows the command lines that take a first lock.
	function welcome(is) {
		if (is && start.hidden) start.lastChild.replaceChildren(commands([["Take it", `leasehold run --store ${here()} first -- sleep 60`], ["Wait for it", `leasehold run --store ${here()} first -- echo my turn`]]));
		start.hidden = !is;
	}

	// began is when the oldest lease was granted, by the clock of its holder, and waits since when
	// the first of the queue has waited, by its own clock.
	const began = ({ row }) => (row.held && row.holders[0].since ? Date.parse(row.holders[0].since) : Infinity);
	const waits = ({ row }) => (row.queue && row.waiters[0].since ? Date.parse(row.waiters[0].since) : Infinity);
	const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);

	// arrange puts the worst lock first, then the longest wait, then the longest hold, and moves no
	// row that stands where it should: the one that has the focus keeps it.
	function arrange() {
		const order = [...rows.values()].sort((a, b) => b.trouble - a.trouble || compare(waits(a), waits(b)) || compare(began(a), began(b)) || compare(a.row.key, b.row.key));
		const elements = order.map((entry) => entry.element);
		for (const element of [...body.children]) {
			if (!elements.includes(element)) element.remove();
		}
		elements.forEach((element, i) => {
			if (body.children[i] !== element) body.insertBefore(element, body.children[i] || null);
		});
	}

	// mark is what a reader wants to see the change of.
	const mark = (row) => row.holders.map((x) => x.leaseId).join() + "|" + row.state;

	function blink(element) {
		element.classList.remove("changed");
		void element.offsetWidth; // the animation begins anew
		element.classList.add("changed");
	}

	function draw(entry) {
		const { row, element } = entry;
		element.dataset.key = row.key;
		const holders = row.holders.map((x) => h("li", {}, who(x, x.mode === "shared" && !row.limit && "reads")));
		if (row.held > holders.length) holders.push(h("li", { class: "process" }, `and ${count(row.held - holders.length)} more`));
		entry.age = h("span", { class: "time" });
		entry.wait = h("span", { class: "time" });
		entry.closed = h("span", { class: "time" });
		entry.bar = leaseBar();
		const nobody = () => h("span", { class: "none" }, row.problem ? ["cannot be read: ", name(row.problem, "text")] : !row.looked ? "not looked at yet" : row.state === "closed" ? [tag("closed", "low"), " for another ", entry.closed] : "nobody");
		const cell = (i, ...content) => h("td", { role: "cell", "data-label": i === 5 ? `${count(row.queue)} wait, longest` : columns[i][0], class: columns[i][1] }, content);
		const focused = element.contains(document.activeElement);
		element.replaceChildren(
			h("th", { role: "rowheader", scope: "row", class: "key" }, h("div", {},
				h("a", { href: "#/lock/" + encodeURIComponent(row.key) }, name(row.key)),
				row.limit || row.held || row.queue ? tag(row.limit ? `semaphore ${row.used} of ${row.limit}` : kind(row)) : "")),
			cell(1, holders.length ? h("ul", {}, holders) : nobody()),
			cell(2, entry.age),
			cell(3, row.held ? entry.bar.element : ""),
			cell(4, row.queue ? count(row.queue) : ""),
			cell(5, entry.wait),
			cell(6, row.queue ? who(row.waiters[0]) : ""),
		);
		if (focused) element.querySelector("a").focus({ preventScroll: true });
		tick(entry);
	}

	// tick writes the times of a row, and notes its trouble: 2 if its record cannot be read or a
	// lease is about to run out, 1 if it is closed or a lease has no end.
	function tick(entry) {
		const { row } = entry;
		const past = stale() ? 0 : performance.now() - entry.at;
		setText(entry.age, began(entry) < Infinity ? span(row.holders[0].ageMs + past) : "");
		setText(entry.wait, !row.queue ? "" : row.waiters[0].since ? span(row.waiters[0].waitedMs + past) : "unknown");
		setText(entry.closed, span((row.closedMs || 0) - past));
		entry.trouble = row.problem ? 2 : row.state === "closed" ? 1 : 0;
		if (row.held) {
			const soonest = row.holders.reduce((a, b) => (b.remainingMs < a.remainingMs ? b : a));
			const endless = soonest.foreign && soonest.remainingMs === 0;
			entry.bar.set(soonest.remainingMs - past, entry.life(soonest), endless && "no end");
			entry.trouble = endless ? 1 : entry.bar.element.dataset.level === "bad" ? 2 : 0;
		}
		entry.element.dataset.level = ["", "low", "bad"][entry.trouble];
	}

	follow(q);
	const rest = every(1000, () => rows.forEach(tick));
	const end = () => {
		clearTimeout(timer);
		rest();
		stop();
	};
	end.query = follow;
	return end;
}
