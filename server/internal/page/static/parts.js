// Parts that the table and the view of one lock share.

import { h, setText } from "./dom.js";
import { span } from "./format.js";

// kind is what sort of lock it looks like: a store keeps no kinds.
export function kind(l) {
	if (l.limit) return "semaphore";
	return [...l.holders, ...l.waiters].some((x) => x.mode === "shared") ? "read-write" : "mutex";
}

// every calls f again and again until the function that it returns is called.
export function every(ms, f) {
	const timer = setInterval(f, ms);
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

// leaseBar shows what is left of a lease, as a bar and in words, which left ends, or other
// words in place of both.
export function leaseBar(left = " left") {
	const fill = h("span", { class: "fill" });
	const text = h("span", { class: "left" });
	const element = h("span", { class: "bar-of" }, h("span", { class: "track", "aria-hidden": "true" }, fill), text);
	return {
		element,
		set(rest, ttl, instead) {
			if (instead) {
				element.dataset.level = "low";
				fill.style.width = "100%";
				setText(text, instead);
				return;
			}
			const part = ttl > 0 ? Math.max(0, Math.min(1, rest / ttl)) : 0;
			element.dataset.level = part < 0.2 ? "bad" : part < 0.45 ? "low" : "good";
			fill.style.width = (part * 100).toFixed(1) + "%";
			setText(text, rest > 0 ? span(rest) + left : "over");
		},
	};
}
