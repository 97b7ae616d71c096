// How the store is, and what the service counts.

import { h, name, setText } from "./dom.js";
import { clock, count, fine, plural, span } from "./format.js";
import { get, repeat, storeAnswers } from "./live.js";

const severities = { ok: ["✓", "Fine"], notice: ["●", "Notice"], warning: ["◆", "Warning"], unsafe: ["▲", "Unsafe"] };
const order = ["unsafe", "warning", "notice", "ok"];

// counters returns a function that sums up the samples of a metric, in the text format of
// Prometheus, that have all of some labels.
function counters(text) {
	const samples = [...text.matchAll(/^(\w+)(?:\{(.*)\})? (\S+)$/gm)].map(([, metric, labels, value]) => ({ metric, labels: labels || "", value: Number(value) }));
	return (metric, ...labels) => samples.filter((x) => x.metric === metric && labels.every((l) => x.labels.includes(l))).reduce((n, x) => n + x.value, 0);
}

const requests = (sum, operation, ...statuses) => statuses.reduce((n, status) => n + sum("leasehold_http_requests_total", `operation="${operation}"`, `status="${status}"`), 0);

// figures are the tiles of counters, each with what it says of the metrics.
const figures = [
	["Waiting now", (sum) => sum("leasehold_http_waiters")],
	["Granted", (sum) => requests(sum, "acquire", 200, 201)],
	["Refused: held", (sum) => requests(sum, "acquire", 409)],
	["Renewed", (sum) => sum("leasehold_http_renewals_total", 'cause=""')],
	["Released", (sum) => requests(sum, "release", 200, 204)],
	["Lost", (sum) => sum("leasehold_http_renewals_total", 'cause="gone"')],
	["Broken", (sum) => requests(sum, "break", 200)],
];

// says makes a sentence.
const says = (text) => text[0].toUpperCase() + text.slice(1) + ".";

// health shows it in an element. It returns what ends it.
export function health(into, { known }) {
	const about = h("p", { class: "summary" });
	const news = h("p", { class: "notice bad", hidden: true });
	const tiles = h("dl", { class: "tiles" });
	const findings = h("div", {});
	const nodes = h("ul", { class: "nodes" });
	into.append(h("h1", {}, "Health"), about, news, tiles,
		h("p", { class: "hint" }, "Counters are those of this service since it started, as ", h("code", {}, "/metrics"), " has them."),
		h("section", { "aria-labelledby": "h-safe" }, h("h2", { id: "h-safe" }, "Is the store safe for locks?"), findings),
		h("section", { "aria-labelledby": "h-nodes" }, h("h2", { id: "h-nodes" }, "Servers"), nodes));
	document.title = "Health – Leasehold";

	function draw(now, metrics) {
		setText(about, `${now.store || "The store"} · service up for ${span(Date.now() - new Date(now.since))}`);
		const sum = counters(metrics);
		const all = [["Round trip", now.failing || !now.roundTripUs ? "–" : fine(now.roundTripUs)], ...figures.map(([label, of]) => [label, count(of(sum))])];
		tiles.replaceChildren(...all.map(([label, text]) => h("div", {}, h("dt", {}, label), h("dd", {}, text))));
		storeAnswers(!now.failing || now.busy);
		news.hidden = !now.failing;
		setText(news, now.busy ? says(now.problem) : now.failing ? "The store does not answer." : "");
		drawFindings(now);
	}

	let text = "";
	function drawFindings(now) {
		const same = JSON.stringify([now.findings, now.nodes, now.checked, now.problem, now.failing]);
		if (same === text) return;
		text = same;
		const sorted = now.findings.toSorted((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
		findings.replaceChildren(
			now.problem && !now.failing ? h("p", { class: "notice bad" }, says(now.problem)) : "",
			now.checked ? h("p", { class: "hint" }, `Asked at ${clock(now.checked)}, and once a minute while a page is open. It is what `, h("code", {}, "leasehold doctor"), " says, without the locks that it tries.") : h("p", { class: "empty" }, "The store has not been asked, or cannot tell."),
			sorted.length ? h("ul", { class: "findings" }, sorted.map((f) => h("li", { class: f.severity },
				h("span", { class: "sign", "aria-hidden": "true" }, (severities[f.severity] || ["●"])[0]),
				h("strong", {}, (severities[f.severity] || ["", f.severity])[1]), h("span", {}, sentence(f))))) : "");
		nodes.replaceChildren(...(now.nodes.length ? now.nodes.map((n) => h("li", {}, name(n.name), n.server ? [" ", h("span", { class: "hint" }, name(n.server, "id"))] : "")) : [h("li", { class: "empty" }, "The store names none.")]));
	}

	known("", "");
	const stop = repeat(async (signal, heard) => {
		const [now, metrics] = await Promise.all([
			get("v1/overview/health", signal).then((r) => r.json()), get("metrics", signal, "text/plain").then((r) => r.text())]);
		heard();
		if (!signal.aborted) draw(now, metrics);
	}, 5000, (problem) => {
		news.hidden = false;
		setText(news, problem.status === 403 ? "Health is for those who may read all locks." : "It cannot be shown: " + problem.message + ".");
	});
	return () => {
		document.title = "Leasehold";
		stop();
	};
}

// sentence is what a store found out about itself.
export const sentence = (f) => [name(f.check, "text"), f.subject ? [" of ", name(f.subject)] : "", ": ", name(f.what, "text"), f.why ? [": ", name(f.why, "text")] : "", f.remedy ? [". ", name(f.remedy[0].toUpperCase() + f.remedy.slice(1), "text")] : ""];
