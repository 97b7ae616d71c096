// Elements are made here and nowhere else: what comes from a store is always text, and
// never markup.

// h makes an element. Attributes that start with "on" are listeners; null and false leave
// one out. Children are nodes, text, or lists of these.
export function h(tag, attributes, ...children) {
	const element = document.createElement(tag);
	for (const [key, value] of Object.entries(attributes || {})) {
		if (value === null || value === undefined || value === false) continue;
		if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
		else element.setAttribute(key, value === true ? "" : value);
	}
	element.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
	return element;
}

// setText changes the text of an element only if it differs, so that a selection lasts.
export function setText(element, text) {
	if (element.textContent !== text) element.textContent = text;
}

// Characters that cannot be seen, or that turn the text around them round.
const hidden = /[\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\u00a0\u3000]/gu;

// name shows a text that somebody chose: isolated, so that its direction stays its own,
// and with what cannot be seen made visible.
export function name(text, kind = "name") {
	const parts = [];
	let last = 0;
	for (const m of text.matchAll(hidden)) {
		const code = "U+" + m[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
		parts.push(text.slice(last, m.index), h("span", { class: "escape" }, code));
		last = m.index + m[0].length;
	}
	parts.push(text.slice(last));
	return h("bdi", { class: kind }, parts);
}
