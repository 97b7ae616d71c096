// Parts that the table and the view of one lock share.

import { h, setText } from "./dom.js";
import { span } from "./format.js";

// kinds are what sorts of lock are called.
export const kinds = { mutex: "mutex", "read-write": "read-write", semaphore: "places", unknown: "" };

// every calls f again and again until the function that it returns is called.
export function every(ms, f) {
	const timer = setInterval(f, ms);
	return () => clearInterval(timer);
}

// leaseBar shows what is left of a lease, as a bar and in words, which left ends.
export function leaseBar(left = " left") {
	const fill = h("span", { class: "fill" });
	const text = h("span", { class: "left" });
	const element = h("span", { class: "bar-of" }, h("span", { class: "track", "aria-hidden": "true" }, fill), text);
	return {
		element,
		set(rest, ttl, endless) {
			if (endless) {
				element.dataset.level = "bad";
				fill.style.width = "100%";
				setText(text, "no end");
				return;
			}
			const part = ttl > 0 ? Math.max(0, Math.min(1, rest / ttl)) : 0;
			element.dataset.level = part < 0.2 ? "bad" : part < 0.45 ? "low" : "good";
			fill.style.width = (part * 100).toFixed(1) + "%";
			setText(text, rest > 0 ? span(rest) + left : "over");
		},
	};
}

// signs tell how bad it is without colour.
const signs = { bad: "▲", warning: "◆", notice: "●" };
const severities = { bad: "Bad", warning: "Warning", notice: "Notice" };
const words = {
	"renewal-missed": "renewal missed", "no-end": "no end", "queue-grows": "queue grows",
	"waits-for-itself": "waits for itself", flapping: "flapping", "limits-differ": "limits differ",
	"store-unsafe": "store unsafe",
};

export const flagWord = (flag) => words[flag.name] || flag.name;

// flagList shows what is odd: in a word each, or with the sentence that explains it.
export function flagList(flags, short) {
	if (!flags.length) return "";
	return h("ul", { class: "flags" }, flags.map((f) => h("li", { class: f.severity, title: short ? f.text : null },
		h("span", { class: "sign", "aria-hidden": "true" }, signs[f.severity] || "●"),
		h("span", { class: "unseen" }, severities[f.severity] + ": "),
		h("strong", {}, flagWord(f)), short ? h("span", { class: "unseen" }, ". " + f.text) : h("span", { class: "why" }, f.text))));
}
