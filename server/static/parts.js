// Parts that the table and the view of one lock share.

import { h, name, setText } from "./dom.js";
import { numbered, process, quote, span } from "./format.js";
import { hasToken } from "./live.js";

// kind is what sort of lock it looks like: a store keeps no kinds.
export function kind(l) {
	if (l.limit) return "semaphore";
	return [...l.holders, ...l.waiters].some((x) => x.mode === "shared") ? "read-write" : "mutex";
}

// tag shows a word in a frame.
export const tag = (text, level) => h("span", { class: "tag", "data-level": level }, text);

// who shows a holder or waiter: its name, then what is known of its process, then more words.
export function who(x, ...more) {
	const p = process(x);
	const facts = [p.command && h("code", {}, name(p.command, "command")), p.host && name(p.host, "host"), p.pid && `pid ${p.pid}`, numbered(x), ...more].filter(Boolean);
	return [name(p.title, "owner"), facts.length ? h("span", { class: "process" }, facts.map((f) => [" ", h("span", {}, f)])) : ""];
}

// stale tells whether what is shown is old, because the store or the service does not answer.
// Times stand still then.
export const stale = () => document.body.classList.contains("stale");

// every calls f again and again, except while the page is stale, until the function that it
// returns is called.
export function every(ms, f) {
	const timer = setInterval(() => stale() || f(), ms);
	return () => clearInterval(timer);
}

// lives returns a function that returns the most that was ever seen to be left of a lease.
export function lives() {
	const most = new Map();
	return (x) => {
		const ms = Math.max(most.get(x.leaseId) || 0, x.remainingMs);
		most.set(x.leaseId, ms);
		return ms;
	};
}

// leaseBar shows what is left of a lease, as a bar and in words, or other words in place of both.
export function leaseBar() {
	const fill = h("span", { class: "fill" });
	const text = h("span", { class: "left" });
	const element = h("span", { class: "bar-of" }, h("span", { class: "track", "aria-hidden": "true" }, fill), text);
	return {
		element,
		set(rest, ttl, instead) {
			const part = instead ? 1 : ttl > 0 ? Math.max(0, Math.min(1, rest / ttl)) : 0;
			element.dataset.level = instead ? "low" : part < 0.2 ? "bad" : part < 0.45 ? "low" : "good";
			fill.style.width = (part * 100).toFixed(1) + "%";
			setText(text, instead || (rest > 0 ? span(rest) : "over"));
		},
	};
}

// here is the service of this page as the value of --store. A token is in a file, never in a
// command line.
export const here = () => quote(new URL("./", document.baseURI).href.slice(0, -1) + (hasToken() ? "?token-file=TOKEN-FILE" : ""));

// commands shows labelled command lines, which break between words.
export const commands = (lines) => h("dl", { class: "commands" }, lines.map(([label, text]) => h("div", {}, h("dt", {}, label), h("dd", {}, h("code", {}, text.split(" ").map((word, i) => [i ? " " : "", word.length < 40 ? h("span", {}, word) : word]))))));
