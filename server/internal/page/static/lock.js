// One lock: who holds it, who waits, what is odd, what has happened, and how to break it.

import { h, name, setText } from "./dom.js";
import { clock, count, fine, owner, plural, quote, span } from "./format.js";
import { listen, send, storeAnswers } from "./live.js";
import { leaseBar, flagList, every, kinds } from "./parts.js";
import { bars } from "./chart.js";

// lock shows one lock in an element. It returns what ends it.
export function lock(into, { name: key, known }) {
	let one = null;
	let at = 0;
	let ticks = [];
	const title = h("h1", {}, name(key));
	const what = h("p", { class: "summary", id: "state" });
	const odd = h("div", { class: "odd-list" });
	const news = h("p", { class: "notice", hidden: true, role: "status", id: "news" });
	const holders = h("div", { class: "holders" });
	const queue = h("div", {});
	const chart = bars("Last hand-overs", "From the release until the next one was told that it has the lock");
	const history = h("div", {});
	into.append(
		h("p", { class: "up" }, h("a", { href: "#/" }, "All locks")),
		title, what, news, odd,
		h("section", { "aria-labelledby": "h-holders" }, h("h2", { id: "h-holders" }, "Held by"), holders),
		h("section", { "aria-labelledby": "h-queue" }, h("h2", { id: "h-queue" }, "Queue"), queue),
		h("section", { "aria-labelledby": "h-history" }, h("h2", { id: "h-history" }, "History"), history, chart.element),
		h("section", { "aria-labelledby": "h-same" }, h("h2", { id: "h-same" }, "The same from elsewhere"), commands(key)),
	);
	document.title = key.slice(0, 60) + " – Leasehold";

	const stop = listen("v1/overview/events?show=lock&name=" + encodeURIComponent(key), (kind, data) => {
		if (kind !== "lock") return;
		one = data;
		storeAnswers(!one.row.failed);
		at = performance.now();
		draw();
	}, (problem) => {
		news.hidden = false;
		news.className = "notice bad";
		setText(news, problem.status === 403 ? "You may not read this lock." : "The lock cannot be shown: " + problem.message + ".");
	});

	const past = () => performance.now() - at;

	function draw() {
		ticks = [];
		const { lock: l, row } = one;
		const places = row.limit ? `, ${row.used} of ${row.limit} places taken` : "";
		const state = l.state === "held" ? `${kinds[row.kind] === "places" ? "semaphore" : kinds[row.kind]}${places}` : l.state === "closed" ? "closed for a while after its last holder" : "free";
		setText(what, `${l.state === "held" ? "Held: " : ""}${state} · ${one.queue ? plural(one.queue, "waits", "wait") : "nobody waits"} · last token ${l.token || "none"}`);
		const flags = [...one.store, ...row.flags];
		const texts = JSON.stringify(flags);
		if (odd.dataset.text !== texts) {
			odd.dataset.text = texts;
			odd.replaceChildren(flagList(flags, false));
		}
		drawHolders();
		drawQueue();
		drawHistory();
		tick();
	}

	const labels = (all) => Object.keys(all || {}).length ? h("dl", { class: "labels" }, Object.entries(all).map(([k, v]) => h("div", {}, h("dt", {}, name(k, "label")), h("dd", {}, name(v, "label"))))) : "";

	function time(of, text) {
		const element = h("span", { class: "time" });
		ticks.push(() => setText(element, text(past())));
		return element;
	}

	function drawHolders() {
		const focus = document.activeElement?.dataset?.lease;
		const { lock: l, row } = one;
		if (!l.holders.length) {
			holders.replaceChildren(h("p", { class: "empty" }, l.state === "closed" ? "Nobody. It stays closed for a while, because its last lease was lost, broken or kept closed." : "Nobody. The next one that asks gets it."));
			return;
		}
		holders.replaceChildren(...l.holders.map((x) => {
			const o = owner(x.owner);
			const bar = leaseBar();
			const ttl = l.holders.length === 1 ? row.ttlMs : Math.max(row.ttlMs, x.remainingMs);
			ticks.push(() => bar.set(x.remainingMs - past(), ttl, x.foreign && x.remainingMs === 0));
			return h("article", { class: "holder", "data-lease": x.leaseId },
				h("h3", {}, name(x.owner || (x.foreign ? "another program" : "somebody"), "owner")),
				h("dl", { class: "facts" },
					o.host ? [fact("Host", name(o.host)), fact("Process", o.process)] : null,
					fact("Held for", time(x, (p) => (x.since ? span(x.ageMs + p) : "unknown"))),
					x.since ? fact("Since", `${clock(x.since)}, by the holder's clock`) : null,
					fact("Lease", bar.element),
					fact("Renewed", row.renewals ? plural(row.renewals, "time") + " while the page was open" : "not seen yet"),
					fact("Token", x.token ? String(x.token) : "none"),
					fact("Lease id", h("code", {}, name(x.leaseId, "id"))),
					row.limit ? fact("Places", String(x.weight || 1)) : fact("Mode", x.mode),
					x.confirmed ? null : fact("Confirmed", "not yet: it was handed over a moment ago"),
					x.foreign ? fact("Kind", "a key of another program") : null),
				labels(x.labels),
				one.mayBreak ? h("button", { type: "button", class: "danger", "data-lease": x.leaseId, onclick: () => ask(x) }, "Break…") : null);
		}));
		if (focus) [...holders.querySelectorAll("button")].find((b) => b.dataset.lease === focus)?.focus({ preventScroll: true });
	}

	const fact = (label, ...content) => h("div", {}, h("dt", {}, label), h("dd", {}, content));

	function drawQueue() {
		const { lock: l } = one;
		if (!l.waiters.length) {
			queue.replaceChildren(h("p", { class: "empty" }, "Nobody waits."));
			return;
		}
		queue.replaceChildren(h("div", { class: "scroll" }, h("table", { class: "plain", id: "queue" },
			h("caption", { class: "unseen" }, "Who waits, in the order in which they will be served"),
			h("thead", {}, h("tr", {}, ["Place", "Who", "Waits for", "Asks for", "Lease id", "Labels"].map((t) => h("th", { scope: "col" }, t)))),
			h("tbody", {}, l.waiters.map((w) => h("tr", {},
				h("td", {}, String(w.position)),
				h("th", { scope: "row" }, name(w.owner || "somebody", "owner")),
				h("td", {}, time(w, (p) => (w.since ? span(w.waitedMs + p) : "unknown"))),
				h("td", {}, w.mode === "shared" ? (one.row.limit ? plural(w.weight || 1, "place") : "reading") : "the whole lock"),
				h("td", {}, h("code", {}, name(w.leaseId, "id"))),
				h("td", { class: "all-labels" }, Object.entries(w.labels || {}).map(([k, v], i) => [i ? ", " : "", name(`${k}=${v}`, "label")]))))))),
		one.queue > l.waiters.length ? h("p", { class: "hint" }, `and ${count(one.queue - l.waiters.length)} more`) : "");
	}

	function happened(e) {
		const by = e.by ? [" by ", name(e.by, "owner")] : "";
		const why = e.reason ? [": ", name(e.reason, "reason")] : "";
		switch (e.kind) {
		case "granted": return e.waitedMs >= 5 ? [`got it after ${span(e.waitedMs)}`] : ["got it"];
		case "waits": return ["began to wait"];
		case "left": return ["left the queue", by, why];
		case "released": return ["released it", e.heldMs ? ` after ${span(e.heldMs)}` : ""];
		case "lost": return ["lost it", e.heldMs ? ` after ${span(e.heldMs)}` : "", why];
		case "broken": return ["was broken", by, why];
		default: return [e.kind];
		}
	}

	function drawHistory() {
		const text = JSON.stringify([one.events, one.handOvers]);
		if (history.dataset.text === text) return;
		history.dataset.text = text;
		history.replaceChildren(
			one.events.length === 0 ? h("p", { class: "empty" }, "Nothing has happened.") :
				h("ol", { class: "events", id: "events" }, one.events.map((e) => h("li", { class: e.kind },
					h("time", { datetime: e.at }, clock(e.at)), " ", h("span", {}, name(e.owner || e.leaseId, "owner"), " ", happened(e),
						e.seen ? h("span", { class: "hint", title: "It did not pass through this service, which noticed it a moment later" }, " (seen)") : "")))),
			h("p", { class: "hint" }, `Since ${clock(one.since)}, when this service started: all that passed through it, and what it saw while a page was open.`));
		chart.set(one.handOvers.map((x) => ({ at: x.at, value: x.us })), fine);
	}

	function tick() {
		for (const f of ticks) f();
	}

	// ask shows what a break does, before it is done.
	function ask(x) {
		const l = one.lock;
		const first = l.waiters[0];
		const who = () => name(x.owner || "its holder", "owner");
		const field = h("input", { id: "reason", required: true, maxlength: "200", autocomplete: "off", "aria-describedby": "reason-hint" });
		const failed = h("p", { class: "notice bad", hidden: true, role: "alert" });
		const confirm = h("button", { type: "submit", class: "danger" }, "Break this lease");
		const others = l.holders.length - 1;
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
				news.replaceChildren("Broken: the lease ", h("code", {}, x.leaseId), " of ", who(), ".");
			} catch (problem) {
				failed.hidden = false;
				setText(failed, problem.status === 404 ? "This lease has ended in the meantime. Nothing was changed." : problem.status === 403 ? "You may not break this lock. Nothing was changed." : "Not broken, as far as is known: " + problem.message + ".");
				confirm.disabled = false;
			}
		} },
		h("h2", { id: "break-title" }, "Break ", name(key), "?"),
		h("ul", { class: "consequences" },
			h("li", {}, h("strong", {}, who(), " loses it"), ": the lease ", h("code", {}, name(x.leaseId, "id")), " with token ", String(x.token || "none"), ", and no other. If it has ended by then, nothing happens."),
			h("li", {}, first ? [h("strong", {}, name(first.owner || "the first of the queue", "owner"), " gets it next"), ", unless others still hold it, as soon as the lock delay is over that ", who(), " may have asked for."] : [h("strong", {}, "Nobody waits"), ": the next one that asks gets it."]),
			others > 0 ? h("li", {}, plural(others, "other lease"), others === 1 ? " of this lock stays." : " of this lock stay.") : "",
			h("li", {}, h("strong", {}, who(), " learns of it"), x.foreign ? " never: it is not a lease of Leasehold." : [" at once if the store can reach it, else at its next renewal, and at the latest when its lease would have ended, in ", time(x, (p) => span(x.remainingMs - p)), "."]),
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
		stop();
		document.querySelector("dialog[open]")?.close();
	};
	return end;
}

// commands are the lines that do the same from a terminal.
function commands(key) {
	const at = (path) => quote(new URL(path, document.baseURI.replace(/#.*/, "")).href);
	const dash = key.startsWith("-") ? "-- " : "";
	const lines = [
		["Look", `leasehold inspect ${dash}${quote(key)}`],
		["Watch", `leasehold watch ${dash}${quote(key)}`],
		["Wait until it is free", `leasehold wait ${dash}${quote(key)}`],
		["Break", `leasehold break --reason 'why' ${dash}${quote(key)} LEASE-ID`],
		["Look, over HTTP", `curl ${at(`v1/locks:inspect?name=${encodeURIComponent(key)}`)}`],
		["Break, over HTTP", `curl -d ${quote(JSON.stringify({ key, leaseId: "LEASE-ID", reason: "why" }))} ${at("v1/locks:break")}`],
	];
	return h("dl", { class: "commands" }, lines.map(([label, text]) => h("div", {}, h("dt", {}, label), h("dd", {}, h("code", { tabindex: "0" }, text)))));
}
