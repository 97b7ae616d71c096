// The table of locks.

import { h, name, setText } from "./dom.js";
import { count, plural, span, owner } from "./format.js";
import { listen, storeAnswers } from "./live.js";
import { leaseBar, flagList, every, kinds } from "./parts.js";

const perPage = 50;

const columns = [
	{ id: "name", label: "Lock" },
	{ id: "", label: "Held by" },
	{ id: "held", label: "Held for", wide: true },
	{ id: "lease", label: "Lease" },
	{ id: "", label: "Token", number: true },
	{ id: "waiters", label: "Waiting", number: true },
	{ id: "wait", label: "Longest wait" },
	{ id: "flags", label: "Odd" },
];

// locks shows the table in an element. It returns what ends it.
export function locks(into, { query, known }) {
	let q = query;
	let stop = null;
	let timer = 0;
	let keys = [];
	let view = null;
	const rows = new Map(); // by name: the row as it was sent, and its element

	const search = h("input", { id: "search", type: "search", autocomplete: "off", spellcheck: "false", placeholder: "Name, owner or lease id", "aria-keyshortcuts": "/",
		oninput: () => {
			clearTimeout(timer);
			timer = setTimeout(() => change({ search: search.value, offset: "" }), 250);
		} });
	const odd = h("button", { type: "button", class: "toggle", hidden: true, onclick: () => change({ flagged: q.get("flagged") ? "" : "true", offset: "" }) });
	const summary = h("p", { class: "summary", id: "summary" });
	const news = h("p", { class: "notice", id: "news", hidden: true });
	const unsafe = h("div", { class: "odd-list", id: "store" });
	const path = h("nav", { class: "path", "aria-label": "Prefix of the names" });
	const tree = h("ul", { class: "tree" });
	const branch = h("details", { class: "branches", open: matchMedia("(min-width: 84rem)").matches || null }, h("summary", {}, "Prefixes"), tree);
	const body = h("tbody", { role: "rowgroup" });
	const heads = columns.map((c) => h("th", { role: "columnheader", scope: "col", class: c.number ? "number" : null },
		c.id ? h("button", { type: "button", onclick: () => sort(c.id) }, c.label) : c.label));
	const table = h("table", { role: "table", "aria-describedby": "summary", id: "locks" },
		h("caption", { class: "unseen" }, "Locks that are held or waited for"),
		h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body);
	const empty = h("p", { class: "empty", hidden: true });
	const back = h("button", { type: "button", onclick: () => turn(-1) }, "Previous");
	const on = h("button", { type: "button", onclick: () => turn(1) }, "Next");
	const where = h("span", { id: "where" });
	const pages = h("nav", { class: "pages", "aria-label": "Pages", hidden: true }, back, where, on);

	into.append(
		h("h1", { class: "unseen" }, "Locks"),
		h("div", { class: "tools" }, h("label", { class: "search" }, h("span", { class: "unseen" }, "Search"), search), odd, summary),
		news, unsafe,
		h("div", { class: "columns" },
			h("aside", { "aria-label": "Prefixes" }, path, branch),
			h("div", { class: "list" }, table, empty, pages)),
	);

	function change(values) {
		const next = new URLSearchParams(q);
		for (const [key, value] of Object.entries(values)) {
			if (value) next.set(key, value);
			else next.delete(key);
		}
		const text = next.toString();
		history.replaceState(null, "", "#/" + (text ? "?" + text : ""));
		follow(next);
	}

	function sort(id) {
		const same = (q.get("sort") || "name") === id;
		change({ sort: id === "name" ? "" : id, order: same && q.get("order") !== "down" ? "down" : "", offset: "" });
	}

	const offset = () => Number(q.get("offset")) || 0;

	function turn(by) {
		change({ offset: String(Math.max(offset() + by * perPage, 0) || "") });
		scrollTo(0, 0);
	}

	// link is the address of this part with another prefix.
	function link(prefix) {
		const next = new URLSearchParams(q);
		next.delete("offset");
		if (prefix) next.set("prefix", prefix);
		else next.delete("prefix");
		const text = next.toString();
		return "#/" + (text ? "?" + text : "");
	}

	function follow(next) {
		q = next;
		if (document.activeElement !== search) search.value = q.get("search") || "";
		odd.setAttribute("aria-pressed", q.get("flagged") ? "true" : "false");
		columns.forEach((c, i) => {
			const sorted = c.id && (q.get("sort") || "name") === c.id;
			if (sorted) heads[i].setAttribute("aria-sort", q.get("order") === "down" ? "descending" : "ascending");
			else heads[i].removeAttribute("aria-sort");
		});
		if (stop) stop();
		const ask = new URLSearchParams(q);
		ask.set("limit", String(perPage));
		stop = listen("v1/overview/events?" + ask, (kind, data) => {
			if (kind === "view") shown(data);
		}, (problem) => {
			news.hidden = false;
			setText(news, "The locks cannot be shown: " + problem.message + ".");
		});
	}

	function shown(now) {
		view = now;
		known(now.principal, now.mode);
		const at = performance.now();
		for (const row of now.rows) {
			const old = rows.get(row.key);
			const entry = old || { element: h("tr", { role: "row" }) };
			entry.row = row;
			entry.at = at;
			draw(entry);
			if (old) blink(entry.element, row, old.mark);
			entry.mark = mark(row);
			rows.set(row.key, entry);
		}
		for (const key of rows.keys()) {
			if (!now.keys.includes(key)) rows.delete(key);
		}
		if (keys.join("\n") !== now.keys.join("\n") || body.childElementCount !== now.keys.length) arrange(now.keys);
		keys = now.keys;
		tell();
	}

	// arrange puts the rows into order, and moves none that stands where it should: the one
	// that has the focus keeps it.
	function arrange(order) {
		const elements = order.map((key) => rows.get(key)?.element).filter(Boolean);
		const wanted = new Set(elements);
		for (const element of [...body.children]) {
			if (!wanted.has(element)) element.remove();
		}
		elements.forEach((element, i) => {
			if (body.children[i] !== element) body.insertBefore(element, body.children[i] || null);
		});
	}

	// mark is what a reader wants to see the change of.
	const mark = (row) => row.holders.map((x) => x.leaseId).join() + "|" + row.state;

	function blink(element, row, before) {
		if (before === undefined || before === mark(row)) return;
		element.classList.remove("changed");
		void element.offsetWidth; // the animation begins anew
		element.classList.add("changed");
	}

	function draw(entry) {
		const { row, element } = entry;
		element.dataset.key = row.key;
		element.className = row.flags.length ? "flagged " + row.flags[0].severity : "";
		const places = row.limit ? `${row.used} of ${row.limit}` : "";
		const holders = row.holders.map((x) => {
			const o = owner(x.owner);
			return h("li", {}, name(o.host || o.text || (x.foreign ? "another program" : "somebody"), "owner"),
				o.process ? h("span", { class: "process" }, ` process ${o.process}`) : "",
				x.mode === "shared" && !row.limit ? h("span", { class: "process" }, " reads") : "");
		});
		if (row.moreHolders) holders.push(h("li", { class: "process" }, `and ${count(row.moreHolders)} more`));
		entry.held = h("span", { class: "time" });
		entry.wait = h("span", { class: "time" });
		entry.bar = leaseBar("");
		const cell = (label, of, ...content) => h("td", { role: "cell", "data-label": label, class: of }, content);
		const focused = element.contains(document.activeElement);
		element.replaceChildren(
			h("th", { role: "rowheader", scope: "row", class: "key" },
				h("a", { href: "#/lock/" + encodeURIComponent(row.key) }, name(row.key)),
				h("span", { class: "kind" }, kinds[row.kind] || row.kind, places ? h("span", { class: "places" }, " " + places) : "")),
			cell("Held by", "held-by", holders.length ? h("ul", {}, holders) : h("span", { class: "none" }, row.state === "closed" ? "closed" : row.state === "unknown" ? "not looked at yet" : "nobody")),
			cell("Held for", null, entry.held),
			cell("Lease", "lease", row.holders.length ? entry.bar.element : ""),
			cell("Token", "number token", row.token ? String(row.token) : ""),
			cell("Waiting", "number", row.waiters ? count(row.waiters) : h("span", { class: "none" }, "0")),
			cell("Longest wait", null, entry.wait),
			cell("Odd", "odd", flagList(row.flags, true)),
		);
		if (focused) element.querySelector("a").focus({ preventScroll: true });
		tick(entry);
	}

	function tick(entry) {
		const { row } = entry;
		const past = performance.now() - entry.at + row.agoMs;
		setText(entry.held, row.heldMs ? span(row.heldMs + past) : "");
		setText(entry.wait, row.waiters && row.waitMs ? span(row.waitMs + past) : "");
		entry.bar.set(row.remainingMs - past, row.ttlMs, row.holders.some((x) => x.foreign) && row.remainingMs === 0);
	}

	function tell() {
		const all = plural(view.locks, "lock");
		const parts = [view.partial ? `more than ${all}` : all, view.waiting ? `${count(view.waiting)} waiting` : "nobody waits"];
		if (view.looked < view.locks) parts.push(`${count(view.looked)} looked at`);
		setText(summary, parts.join(" · "));
		odd.hidden = false;
		setText(odd, view.flagged ? `Odd: ${count(view.flagged)}` : "Nothing odd");
		odd.classList.toggle("some", view.flagged > 0);
		storeAnswers(!view.failing);
		news.hidden = !view.failing && !view.partial;
		news.className = "notice" + (view.failing ? " bad" : "");
		setText(news, view.failing ? "The store does not answer: what you see is as it was." : view.partial ? "There are more locks than the page keeps: narrow the prefix with the command line." : "");
		empty.hidden = view.total > 0;
		table.hidden = view.total === 0;
		setText(empty, !view.listed && !view.failing ? "Looking…" : view.locks === 0 ? (view.principal ? "No lock that you may read is held or waited for." : "No lock is held, and nobody waits.") : q.get("flagged") && !view.flagged ? "Nothing odd. That is good." : "No lock fits.");
		pages.hidden = view.total <= perPage && offset() === 0;
		setText(where, `${count(Math.min(offset() + 1, view.total))}–${count(Math.min(offset() + perPage, view.total))} of ${count(view.total)}`);
		back.disabled = offset() === 0;
		on.disabled = offset() + perPage >= view.total;
		const store = JSON.stringify(view.store);
		if (unsafe.dataset.text !== store) {
			unsafe.dataset.text = store;
			unsafe.replaceChildren(flagList(view.store, false));
		}
		drawTree();
	}

	let treeText = "";
	function drawTree() {
		const prefix = q.get("prefix") || "";
		const text = JSON.stringify([prefix, view.branches]);
		if (text === treeText) return;
		treeText = text;
		const steps = prefix.match(/[^/:]*[/:]|[^/:]+$/g) || [];
		path.replaceChildren(h("a", { href: link("") , "aria-current": prefix ? null : "true" }, "All names"),
			steps.map((step, i) => {
				const at = steps.slice(0, i + 1).join("");
				return h("a", { href: link(at), "aria-current": at === prefix ? "true" : null }, name(step));
			}));
		branch.hidden = view.branches.length === 0;
		const focused = tree.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
		tree.replaceChildren(...view.branches.map((b) => h("li", {},
			h("a", { href: link(b.prefix) }, name(b.prefix.slice(prefix.length)),
				h("span", { class: "amount" }, count(b.locks), b.waiters ? h("span", { class: "more" }, ` · ${count(b.waiters)} waiting`) : "", b.flagged ? h("span", { class: "more odd" }, ` · ${count(b.flagged)} odd`) : "")))));
		if (focused) [...tree.querySelectorAll("a")].find((a) => a.getAttribute("href") === focused)?.focus({ preventScroll: true });
	}

	follow(q);
	const rest = every(1000, () => rows.forEach(tick));
	const end = () => {
		clearTimeout(timer);
		rest();
		if (stop) stop();
	};
	end.query = follow;
	return end;
}
