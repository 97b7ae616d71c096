// The table of locks.

import { h, name, setText } from "./dom.js";
import { count, plural, span, owner } from "./format.js";
import { poll, storeAnswers } from "./live.js";
import { leaseBar, every, kind, lives } from "./parts.js";

const columns = ["Lock", "Held by", "Held for", "Lease", "Token", "Waiting", "Longest wait"];
const numbers = ["Token", "Waiting"];

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
		h("caption", { class: "unseen" }, "Locks that are held or waited for, the one that is held longest first"),
		h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, columns.map((c) => h("th", { role: "columnheader", scope: "col", class: numbers.includes(c) ? "number" : null }, c)))), body);
	const empty = h("p", { class: "empty", hidden: true });
	const first = h("a", { hidden: true, onclick: () => q.get("cursor") || follow(q) }, "First page");
	const next = h("a", { hidden: true }, "Next page");
	const pages = h("nav", { class: "pages", "aria-label": "Pages", hidden: true }, first, next);

	into.append(
		h("h1", { class: "unseen" }, "Locks"),
		h("div", { class: "tools" }, h("label", { class: "search" }, h("span", { class: "unseen" }, "Names that begin with"), search), summary),
		news, h("div", { class: "list" }, table, empty, pages));

	// turn shows other locks in place of these.
	function turn(prefix, cursor) {
		history.replaceState(null, "", address(prefix, cursor));
		follow(new URLSearchParams(location.hash.split("?")[1]));
	}

	function follow(now) {
		q = now;
		if (document.activeElement !== search) search.value = q.get("prefix") || "";
		setText(empty, "Looking…");
		empty.hidden = rows.size > 0;
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
			draw(entry);
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
		empty.hidden = rows.size > 0;
		table.hidden = rows.size === 0;
		setText(empty, q.get("prefix") || q.get("cursor") ? "No lock fits." : view.principal ? "No lock that you may read is held or waited for." : "No lock is held, and nobody waits.");
		for (const [link, cursor, is] of [[first, "", q.get("cursor") || walk], [next, view.cursor, view.cursor]]) {
			link.hidden = !is;
			link.href = address(q.get("prefix"), cursor);
		}
		pages.hidden = first.hidden && next.hidden;
	}

	// began is when the oldest lease was granted, by the clock of its holder.
	const began = ({ row }) => (row.held && row.holders[0].since ? Date.parse(row.holders[0].since) : Infinity);

	// arrange puts the lock that is held longest first, and moves no row that stands where it
	// should: the one that has the focus keeps it.
	function arrange() {
		const order = [...rows.values()].sort((a, b) => began(a) - began(b) || (a.row.key < b.row.key ? -1 : 1));
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
		const holders = row.holders.map((x) => {
			const o = owner(x.owner);
			return h("li", {}, name(o.host || o.text || (x.foreign ? "another program" : "somebody"), "owner"),
				o.process ? h("span", { class: "process" }, ` process ${o.process}`) : "",
				x.mode === "shared" && !row.limit ? h("span", { class: "process" }, " reads") : "");
		});
		if (row.held > holders.length) holders.push(h("li", { class: "process" }, `and ${count(row.held - holders.length)} more`));
		entry.age = h("span", { class: "time" });
		entry.wait = h("span", { class: "time" });
		entry.bar = leaseBar("");
		const cell = (label, of, ...content) => h("td", { role: "cell", "data-label": label, class: of }, content);
		const focused = element.contains(document.activeElement);
		element.replaceChildren(
			h("th", { role: "rowheader", scope: "row", class: "key" },
				h("a", { href: "#/lock/" + encodeURIComponent(row.key) }, name(row.key)),
				h("span", { class: "kind" }, row.looked ? kind(row) : "", row.limit ? h("span", { class: "places" }, ` ${row.used} of ${row.limit}`) : "")),
			cell("Held by", "held-by", holders.length ? h("ul", {}, holders) : h("span", { class: "none" }, row.problem ? ["cannot be read: ", name(row.problem, "text")] : !row.looked ? "not looked at yet" : row.state === "closed" ? "closed" : "nobody")),
			cell("Held for", null, entry.age),
			cell("Lease", "lease", row.held ? entry.bar.element : ""),
			cell("Token", "number token", row.token ? String(row.token) : ""),
			cell("Waiting", "number", row.queue ? count(row.queue) : h("span", { class: "none" }, "0")),
			cell("Longest wait", null, entry.wait),
		);
		if (focused) element.querySelector("a").focus({ preventScroll: true });
		tick(entry);
	}

	function tick(entry) {
		const { row } = entry;
		const past = performance.now() - entry.at;
		setText(entry.age, began(entry) < Infinity ? span(row.holders[0].ageMs + past) : "");
		setText(entry.wait, row.queue && row.waiters[0].since ? span(row.waiters[0].waitedMs + past) : "");
		if (!row.held) return;
		const soonest = row.holders.reduce((a, b) => (b.remainingMs < a.remainingMs ? b : a));
		entry.bar.set(soonest.remainingMs - past, entry.life(soonest), soonest.foreign && soonest.remainingMs === 0 && "no end");
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
