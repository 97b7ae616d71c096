// One lock: who holds it, who waits, what happens, and how to break it.

import { h, name, setText } from "./dom.js";
import { clock, count, plural, process, quote, span } from "./format.js";
import { listen, poll, send, storeAnswers } from "./live.js";
import { commands, every, here, kind, leaseBar, lives, stale, tag, who } from "./parts.js";

const maxWaiters = 200; // that are shown
const maxEvents = 200; // that are kept
const shown = ["leasehold.host", "leasehold.pid", "leasehold.command"]; // labels that are in a heading

// byId finds leases by their id.
const byId = (all) => new Map(all.map((x) => [x.leaseId, x]));

// lock shows one lock in an element. It returns what ends it.
export function lock(into, { name: key, known, store }) {
	let one = null; // as the last event told
	let at = 0; // and when
	let mayBreak = false;
	let ticks = [];
	const life = lives();
	const events = []; // what has happened, the latest first
	const reasons = new Map(); // of leases that were broken
	const tags = h("span", { class: "tags" });
	const what = h("p", { class: "summary", id: "state" });
	const news = h("p", { class: "notice", hidden: true, role: "status", id: "news" });
	const holders = h("div", { class: "holders" });
	const queue = h("div", {});
	const history = h("div", {});
	const direct = h("p", { class: "hint" });
	into.append(
		h("p", { class: "up" }, h("a", { href: "#/" }, "← All locks")),
		h("div", { class: "title" }, h("h1", {}, name(key)), tags), what, news,
		h("div", { class: "sides" },
			h("section", { "aria-labelledby": "h-holders" }, h("h2", { id: "h-holders" }, "Held by"), holders),
			h("section", { "aria-labelledby": "h-queue" }, h("h2", { id: "h-queue" }, "Queue"), queue),
			h("section", { "aria-labelledby": "h-history" }, h("h2", { id: "h-history" }, "History"), history),
			h("section", { "aria-labelledby": "h-same" }, h("h2", { id: "h-same" }, "The same from a terminal"), commands(lines(key)), direct)),
	);
	document.title = key.slice(0, 60) + " – Leasehold";

	const failed = (problem) => {
		news.hidden = false;
		news.className = "notice bad";
		setText(news, problem.status === 403 ? "You may not read this lock." : "The lock cannot be shown: " + problem.message + ".");
	};
	const stops = [
		listen("v1/events?name=" + encodeURIComponent(key), (type, data) => {
			if (type === "lock") changed(data);
			else if (type === "broken" && data.key === key) broken(data);
		}, failed),
		// Events tell of no renewal, and not what one may do.
		poll(() => "v1/overview/lock?name=" + encodeURIComponent(key), 2000, (now) => {
			storeAnswers(!now.failed);
			if (!one) return;
			const told = byId(now.holders);
			for (const x of one.holders) {
				const same = told.get(x.leaseId);
				if (same) x.remainingMs = same.remainingMs - now.agoMs + past();
				x.untold = !same && now.held > now.holders.length;
			}
			if (mayBreak !== now.mayBreak) {
				mayBreak = now.mayBreak;
				drawHolders();
				tick();
			} else if (!stale()) tick();
		}, failed),
	];

	function changed(now) {
		if (one) compare(one, now);
		one = now;
		at = performance.now();
		draw();
	}

	// compare notes what has happened between two states.
	function compare(before, after) {
		const [held, waited, holds, waits] = [before.holders, before.waiters, after.holders, after.waiters].map(byId);
		for (const x of before.holders) {
			if (holds.has(x.leaseId)) continue;
			const kept = x.since ? ` after ${span(x.ageMs + past())}` : "";
			if (reasons.has(x.leaseId)) note(x, "broken", ["was broken: ", name(reasons.get(x.leaseId), "reason")]);
			else if (!x.foreign && !x.untold && x.remainingMs - past() < 1000) note(x, "lost", [`lost it${kept}: its lease ran out`]);
			else note(x, "released", [`released it${kept}`]);
		}
		for (const x of after.holders) {
			if (held.has(x.leaseId)) continue;
			const then = waited.get(x.leaseId);
			note(x, "granted", [then?.since ? `got it after ${span(then.waitedMs + past())}` : "got it"]);
		}
		const last = (all, is) => all.filter((x) => is(x.leaseId)).slice(-maxEvents);
		for (const x of last(after.waiters, (id) => !waited.has(id))) note(x, "waits", ["began to wait"]);
		for (const x of last(before.waiters, (id) => !waits.has(id) && !holds.has(id))) note(x, "left", ["left the queue"]);
	}

	function note(x, type, text) {
		events.unshift({ lease: x.leaseId, type, element: h("li", { class: type },
			h("time", { datetime: new Date().toISOString() }, clock(Date.now())), " ", h("span", {}, name(x.owner ? process(x).text : x.leaseId || "somebody", "owner"), " ", text)) });
		events.length = Math.min(events.length, maxEvents);
	}

	// broken notes why a lease was broken. That its holder has gone may have been noted already.
	function broken({ leaseId, reason }) {
		reasons.set(leaseId, reason);
		const noted = events.find((e) => e.lease === leaseId && (e.type === "released" || e.type === "lost"));
		if (!noted) return;
		noted.element.className = "broken";
		noted.element.lastChild.replaceChildren(noted.element.lastChild.firstChild, " was broken: ", name(reason, "reason"));
	}

	const past = () => performance.now() - at;

	function draw() {
		ticks = [];
		const used = one.holders.reduce((n, x) => n + (x.weight || 1), 0);
		const closed = one.state === "closed" ? h("span", { class: "time" }) : null;
		ticks.push(() => closed && setText(closed, span((one.closedMs || 0) - past())));
		tags.replaceChildren(one.limit || one.holders.length || one.waiters.length ? tag(one.limit ? `semaphore ${used} of ${one.limit}` : kind(one)) : "", closed ? tag("closed", "low") : "");
		what.replaceChildren(closed ? "Closed for another " : one.state === "held" ? "Held" : "Free", closed || "",
			` · ${one.waiters.length ? plural(one.waiters.length, "waits", "wait") : "nobody waits"} · last token ${one.token || "none"}`);
		drawHolders();
		drawQueue();
		drawHistory();
		tick();
	}

	// labels shows the labels of a holder or waiter, without those that its heading has.
	const labels = (all) => Object.entries(all || {}).filter(([k]) => !shown.includes(k)).map(([k, v]) => h("li", { class: "tag" }, name(`${k}=${v}`, "label")));

	function time(of, text) {
		const element = h("span", { class: "time" });
		ticks.push(() => setText(element, text(past())));
		return element;
	}

	function drawHolders() {
		const focus = document.activeElement?.dataset?.lease;
		if (!one.holders.length) {
			holders.replaceChildren(h("p", { class: "empty" }, one.state === "closed" ? "Nobody. It stays closed for a while, because its last lease was lost, broken or kept closed." : "Nobody. The next one that asks gets it."));
			return;
		}
		holders.replaceChildren(...one.holders.map((x) => {
			const bar = leaseBar();
			ticks.push(() => {
				const rest = x.remainingMs - past();
				bar.set(rest, life(x), x.foreign && x.remainingMs === 0 ? "no end" : x.untold && rest <= 0 && "not known");
			});
			return h("article", { class: "holder", "data-lease": x.leaseId },
				h("div", { class: "head" }, h("h3", {}, who(x)),
					mayBreak ? h("button", { type: "button", class: "danger", "data-lease": x.leaseId, onclick: () => ask(x) }, "Break…") : null),
				h("dl", { class: "facts" },
					fact("Lease ends in", bar.element),
					fact("Held for", time(x, (p) => (x.since ? span(x.ageMs + p) : "unknown"))),
					x.since ? fact("Since, by its clock", clock(x.since)) : null,
					fact("Token", x.token ? String(x.token) : "none", "token"),
					one.limit ? x.weight > 1 && fact("Places", String(x.weight)) : x.mode === "shared" ? fact("Mode", "reads") : null,
					x.confirmed ? null : fact("Confirmed", "not yet: it was handed over a moment ago"),
					x.foreign ? fact("Kind", "a key of another program") : fact("Lease id", h("code", {}, name(x.leaseId, "id")), "id-of")),
				h("ul", { class: "labels" }, labels(x.labels)));
		}));
		if (focus) [...holders.querySelectorAll("button")].find((b) => b.dataset.lease === focus)?.focus({ preventScroll: true });
	}

	const fact = (label, content, of) => h("div", { class: of }, h("dt", {}, label), h("dd", {}, content));

	function drawQueue() {
		if (!one.waiters.length) {
			queue.replaceChildren(h("p", { class: "empty" }, "Nobody waits."));
			return;
		}
		queue.replaceChildren(h("ol", { class: "queue", id: "queue", role: "list" }, one.waiters.slice(0, maxWaiters).map((w) => h("li", {},
			h("span", { class: "place" }, String(w.position)),
			h("div", {}, h("div", { class: "head" }, h("span", {}, who(w)), h("span", { class: "waited" }, h("span", { class: "unseen" }, "waits for "), time(w, (p) => (w.since ? span(w.waitedMs + p) : "unknown")))),
				h("ul", { class: "labels" },
					h("li", {}, asks(w), "lease ", h("code", {}, name(w.leaseId, "id"))), labels(w.labels)))))),
		one.waiters.length > maxWaiters ? h("p", { class: "hint" }, `and ${count(one.waiters.length - maxWaiters)} more`) : "");
	}

	// asks says what a waiter asks for, where others ask for something else.
	const asks = (w) => (w.mode !== "shared" ? (kind(one) === "mutex" ? "" : "the whole lock · ") : one.limit ? plural(w.weight || 1, "place") + " · " : "reads · ");

	const since = clock(Date.now());
	function drawHistory() {
		history.replaceChildren(
			events.length ? h("ol", { class: "events", id: "events" }, events.map((e) => e.element)) : h("p", { class: "empty" }, "Nothing has happened."),
			h("p", { class: "hint" }, `Since ${since}, when you opened this part of the page.`));
	}

	function tick() {
		for (const f of ticks) f();
		setText(direct, store() ? `--store names this service. With the full URL of its store, ${store()}, the commands also work without it.` : "");
	}

	// ask shows what a break does, before it is done.
	function ask(x) {
		const first = one.waiters[0];
		const holder = () => name(x.owner ? process(x).text : "its holder", "owner");
		const field = h("input", { id: "reason", required: true, maxlength: "200", autocomplete: "off", "aria-describedby": "reason-hint" });
		const failed = h("p", { class: "notice bad", hidden: true, role: "alert" });
		const confirm = h("button", { type: "submit", class: "danger" }, "Break this lease");
		const others = one.holders.length - 1;
		const dialog = h("dialog", { "aria-labelledby": "break-title", onclose: () => {
			dialog.remove();
			[...holders.querySelectorAll("button")].find((b) => b.dataset.lease === x.leaseId)?.focus();
		} },
		h("form", { onsubmit: async (e) => {
			e.preventDefault();
			confirm.disabled = true;
			try {
				await send("POST", "v1/locks:break", { key, leaseId: x.leaseId, reason: field.value.trim() });
				dialog.close();
				news.hidden = false;
				news.className = "notice";
				news.replaceChildren("Broken: the lease ", h("code", {}, x.leaseId), " of ", holder(), ".");
			} catch (problem) {
				failed.hidden = false;
				setText(failed, problem.status === 404 ? "This lease has ended in the meantime. Nothing was changed." : problem.status === 403 ? "You may not break this lock. Nothing was changed." : "Not broken, as far as is known: " + problem.message + ".");
				confirm.disabled = false;
			}
		} },
		h("h2", { id: "break-title" }, "Break ", name(key), "?"),
		h("ul", { class: "consequences" },
			h("li", {}, h("strong", {}, holder(), " loses it"), ": the lease ", h("code", {}, name(x.leaseId, "id")), " with token ", String(x.token || "none"), ", and no other. If it has ended by then, nothing happens."),
			h("li", {}, first ? [h("strong", {}, name(first.owner ? process(first).text : "the first of the queue", "owner"), " gets it next"), ", unless others still hold it, as soon as the lock delay is over that ", holder(), " may have asked for."] : [h("strong", {}, "Nobody waits"), ": the next one that asks gets it."]),
			others > 0 ? h("li", {}, plural(others, "other lease"), others === 1 ? " of this lock stays." : " of this lock stay.") : "",
			h("li", {}, h("strong", {}, holder(), " learns of it"), x.foreign ? " never: it is not a lease of Leasehold." : [" at once if the store can reach it, else at its next renewal, and at the latest when its lease would have ended, in ", time(x, (p) => span(x.remainingMs - p)), "."]),
			h("li", {}, h("strong", {}, "What it is writing goes on until then."), " Only a resource that checks tokens refuses it: one that has seen a token greater than ", String(x.token || 0), "."),
			h("li", {}, "The service logs who broke it, and why.")),
		h("label", { for: "reason" }, "Reason"), field,
		h("p", { class: "hint", id: "reason-hint" }, "The holder and the log are told."),
		failed,
		h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Leave it"), confirm)));
		document.body.append(dialog);
		dialog.showModal();
		tick();
		field.focus();
	}

	known("", "");
	const rest = every(500, tick);
	const end = () => {
		document.title = "Leasehold";
		rest();
		stops.forEach((stop) => stop());
		document.querySelector("dialog[open]")?.close();
	};
	return end;
}

// lines are the commands that do the same from a terminal.
function lines(key) {
	const at = (path) => quote(new URL(path, document.baseURI.replace(/#.*/, "")).href);
	const of = (command) => `leasehold ${command} --store ${here()}`;
	const dash = key.startsWith("-") ? "-- " : "";
	return [
		["Look", `${of("inspect")} ${dash}${quote(key)}`],
		["Watch", `${of("watch")} ${dash}${quote(key)}`],
		["Wait until it is free", `${of("wait")} ${dash}${quote(key)}`],
		["Break", `${of("break")} --reason 'why' ${dash}${quote(key)} LEASE-ID`],
		["Look, over HTTP", `curl ${at(`v1/locks:inspect?name=${encodeURIComponent(key)}`)}`],
		["Break, over HTTP", `curl -d ${quote(JSON.stringify({ key, leaseId: "LEASE-ID", reason: "why" }))} ${at("v1/locks:break")}`],
	];
}
