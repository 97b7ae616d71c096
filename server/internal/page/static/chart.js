// Small charts: drawn by hand, exact under the pointer and the arrow keys, and as a table.

import { h, svg, setText } from "./dom.js";
import { clock } from "./format.js";

const width = 480;
const height = 120;

// lines draws some series over time. Each has a name and a colour of its own, and a dash, so
// that they differ without colour. A value that is unknown is drawn as 0, and is "–" in words.
export function lines(title, hint, series, format) {
	let samples = [];
	let chosen = -1;
	const figure = h("p", { class: "figure", "aria-live": "off" });
	const plot = svg("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", class: "plot", "aria-hidden": "true" });
	const top = h("span", { class: "top" });
	const area = h("div", { class: "area", tabindex: "0", role: "group", "aria-label": title + ": the arrow keys go from sample to sample",
		onpointermove: (e) => {
			const box = area.getBoundingClientRect();
			choose(Math.round(((e.clientX - box.left) / box.width) * (samples.length - 1)));
		},
		onpointerleave: () => choose(-1),
		onblur: () => choose(-1),
		onkeydown: (e) => {
			const by = { ArrowLeft: -1, ArrowRight: 1, Home: -samples.length, End: samples.length }[e.key];
			if (!by || !samples.length) return;
			e.preventDefault();
			figure.setAttribute("aria-live", "polite");
			choose(Math.max(0, Math.min(samples.length - 1, (chosen < 0 ? samples.length - 1 : chosen) + by)));
		} }, plot, top);
	const body = h("tbody", {});
	const details = h("details", { ontoggle: () => fillTable() }, h("summary", {}, "As a table"),
		h("div", { class: "scroll table", tabindex: "0", role: "region", "aria-label": title + ", as a table" }, h("table", { class: "plain" },
			h("caption", { class: "unseen" }, title),
			h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "From"), series.map((s) => h("th", { scope: "col", class: "number" }, s.name)))), body)));
	const legend = h("ul", { class: "legend" }, series.map((s, i) => h("li", { class: "s" + i }, svg("svg", { viewBox: "0 0 24 6", width: 24, height: 6, "aria-hidden": "true" }, svg("path", { d: "M0 3H24", class: "line s" + i })), s.name)));
	const element = h("article", { class: "chart" }, h("h3", {}, title), hint ? h("p", { class: "hint" }, hint) : "", figure, area, h("p", { class: "axis" }, h("span", {}), h("span", {})), legend, details);
	const axis = element.querySelector(".axis").children;

	function choose(i) {
		chosen = samples.length ? Math.max(-1, Math.min(i, samples.length - 1)) : -1;
		draw();
	}

	function draw() {
		const most = Math.max(...samples.flatMap((x) => series.map((s) => s.of(x) || 0)), 0);
		const scale = most > 0 ? most * 1.1 : 1;
		const x = (i) => (samples.length > 1 ? (i / (samples.length - 1)) * width : width);
		const y = (v) => height - (v / scale) * (height - 6) - 2;
		plot.replaceChildren(
			...[0.25, 0.5, 0.75].map((p) => svg("path", { class: "grid", d: `M0 ${height * p}H${width}` })),
			...series.map((s, n) => svg("path", { class: "line s" + n, d: samples.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(s.of(v) || 0).toFixed(1)}`).join("") })),
			chosen >= 0 ? svg("path", { class: "cursor", d: `M${x(chosen).toFixed(1)} 0V${height}` }) : "");
		setText(top, most > 0 ? format(most) : "");
		const at = samples[chosen >= 0 ? chosen : samples.length - 1];
		setText(figure, at ? `${chosen >= 0 ? clock(at.at) : "Now"}: ` + series.map((s) => `${s.name} ${format(s.of(at))}`).join(", ") : "");
		if (samples.length) {
			setText(axis[0], clock(samples[0].at));
			setText(axis[1], clock(samples[samples.length - 1].at));
		}
	}

	function fillTable() {
		if (!details.open) return;
		body.replaceChildren(...samples.toReversed().map((v) => h("tr", {}, h("th", { scope: "row" }, clock(v.at)), series.map((s) => h("td", { class: "number" }, format(s.of(v)))))));
	}

	return {
		element,
		set(now) {
			samples = now;
			if (chosen >= samples.length) chosen = -1;
			draw();
			fillTable();
		},
	};
}

// bars draws a few values, one beside the other.
export function bars(title, hint) {
	const plot = h("ol", { class: "bars" });
	const none = h("p", { class: "empty" }, "None yet.");
	const body = h("tbody", {});
	const details = h("details", {}, h("summary", {}, "As a table"), h("table", { class: "plain" },
		h("caption", { class: "unseen" }, title), h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "At"), h("th", { scope: "col", class: "number" }, "Took"))), body));
	const element = h("article", { class: "chart", id: "hand-overs" }, h("h3", {}, title), h("p", { class: "hint" }, hint), none, plot, details);
	return {
		element,
		set(all, format) {
			none.hidden = all.length > 0;
			plot.hidden = details.hidden = all.length === 0;
			const most = Math.max(...all.map((x) => x.value), 1);
			plot.replaceChildren(...all.map((x) => {
				const bar = h("span", { class: "column", "aria-hidden": "true" });
				bar.style.height = Math.max(2, (x.value / most) * 100).toFixed(1) + "%";
				return h("li", { title: `${clock(x.at)}: ${format(x.value)}` }, bar, h("span", { class: "unseen" }, format(x.value)));
			}));
			body.replaceChildren(...all.toReversed().map((x) => h("tr", {}, h("th", { scope: "row" }, clock(x.at)), h("td", { class: "number" }, format(x.value)))));
		},
	};
}
