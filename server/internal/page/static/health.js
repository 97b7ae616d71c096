// How the store and the service are, now and for an hour.

import { h, name, setText } from "./dom.js";
import { clock, count, fine, plural, rate, span, unknown } from "./format.js";
import { listen, storeAnswers } from "./live.js";
import { lines } from "./chart.js";

const severities = { ok: ["✓", "Fine"], notice: ["●", "Notice"], warning: ["◆", "Warning"], unsafe: ["▲", "Unsafe"] };
const order = ["unsafe", "warning", "notice", "ok"];

// health shows it in an element. It returns what ends it.
export function health(into, { known }) {
	let perSecond = 0.1;
	const seen = (x) => x.looks > x.failures; // or nothing is known but what came through this service
	const each = (of) => (x) => (of(x) || seen(x) ? of(x) * perSecond : unknown);
	const took = (of) => (x) => of(x) || unknown;
	const about = h("p", { class: "summary" });
	const news = h("p", { class: "notice bad", hidden: true });
	const tiles = h("dl", { class: "tiles" });
	const charts = [
		lines("Round trip to the store", "Half of the looks took less", [{ name: "p50", of: took((x) => x.roundTripUs) }], fine),
		lines("Acquisitions and renewals per second", "Through this service, or seen", [{ name: "acquisitions", of: each((x) => x.acquisitions) }, { name: "renewals", of: each((x) => x.renewals) }], rate),
		lines("Waits", "Of requests that were granted a lock", [{ name: "p50", of: took((x) => x.waitP50Us) }, { name: "p99", of: took((x) => x.waitP99Us) }], fine),
		lines("Hand-overs per second", "From one holder to the next of the queue", [{ name: "hand-overs", of: each((x) => x.handOvers) }], rate),
		lines("Losses", "Leases that ended before they were released, in 10 s", [{ name: "ran out", of: (x) => x.lost }, { name: "broken", of: (x) => x.broken }], count),
		lines("Requests of this page to the store, per second", "All pages share them; failed ones are counted beside", [{ name: "looks", of: each((x) => x.looks) }, { name: "failed", of: each((x) => x.failures) }], rate),
	];
	const findings = h("div", {});
	const nodes = h("ul", { class: "nodes" });
	const services = h("ul", { class: "nodes", id: "services" });
	into.append(h("h1", {}, "Health"), about, news, tiles, h("h2", {}, "The last hour"), h("div", { class: "charts" }, charts.map((c) => c.element)),
		h("section", { "aria-labelledby": "h-safe" }, h("h2", { id: "h-safe" }, "Is the store safe for locks?"), findings),
		h("section", { "aria-labelledby": "h-nodes" }, h("h2", { id: "h-nodes" }, "Servers"), nodes),
		h("section", { "aria-labelledby": "h-services" }, h("h2", { id: "h-services" }, "Services"), services));
	document.title = "Health – Leasehold";

	function draw(now) {
		perSecond = 1000 / now.intervalMs;
		const whole = now.samples.length > 1 ? now.samples[now.samples.length - 2] : now.samples[0];
		const hour = (of) => {
			const n = now.samples.reduce((sum, x) => sum + of(x), 0);
			return n || now.samples.some(seen) ? count(n) : "–";
		};
		const second = (of) => {
			const n = each(of)(whole);
			return rate(n) + (Number.isNaN(n) ? "" : " /s");
		};
		setText(about, `${now.store || "The store"} · service up for ${span(new Date(now.now) - new Date(now.since))} · ${plural(now.pages, "page")} open`);
		tiles.replaceChildren(...[
			["Round trip", fine(whole.roundTripUs || unknown)],
			["Acquisitions", second((x) => x.acquisitions)],
			["Renewals", second((x) => x.renewals)],
			["Wait p99", fine(whole.waitP99Us || unknown)],
			["Hand-overs", second((x) => x.handOvers)],
			["Ran out, last hour", hour((x) => x.lost)],
			["Broken, last hour", hour((x) => x.broken)],
		].map(([label, text]) => h("div", {}, h("dt", {}, label), h("dd", {}, text))));
		for (const c of charts) c.set(now.samples);
		const failing = now.samples.slice(-2).some((x) => x.failures > 0);
		storeAnswers(!failing);
		news.hidden = !failing;
		setText(news, failing ? "The store did not answer some looks." : "");
		drawFindings(now);
		const said = JSON.stringify(now.services);
		if (services.dataset.text !== said) {
			services.dataset.text = said;
			services.replaceChildren(...(now.services.length ? now.services.map((x) => h("li", {}, name(x.name), " ", h("span", { class: "hint" }, [x.self ? "answers you" : "", x.page ? "has a page open" : ""].filter(Boolean).join(", ")))) : [h("li", { class: "empty" }, "None is known yet, or the store cannot tell.")]),
				h("li", { class: "hint" }, "Those with a page, all of them some 20 seconds after one was opened."));
		}
	}

	let text = "";
	function drawFindings(now) {
		const same = JSON.stringify([now.findings, now.nodes, now.checked, now.problem]);
		if (same === text) return;
		text = same;
		const sorted = now.findings.toSorted((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
		findings.replaceChildren(
			now.problem ? h("p", { class: "notice bad" }, now.problem[0].toUpperCase() + now.problem.slice(1) + ".") : "",
			now.checked ? h("p", { class: "hint" }, `Asked at ${clock(now.checked)}, and once a minute while a page is open. It is what `, h("code", {}, "leasehold doctor"), " says, without the locks that it tries.") : h("p", { class: "empty" }, "The store has not been asked, or cannot tell."),
			sorted.length ? h("ul", { class: "findings" }, sorted.map((f) => h("li", { class: f.severity },
				h("span", { class: "sign", "aria-hidden": "true" }, (severities[f.severity] || ["●"])[0]),
				h("strong", {}, (severities[f.severity] || ["", f.severity])[1]), h("span", {}, name(f.check, "text"), f.subject ? [" of ", name(f.subject)] : "", ": ", name(f.what, "text"), f.why ? [": ", name(f.why, "text")] : "", f.remedy ? [". ", name(f.remedy, "text")] : "")))) : "");
		nodes.replaceChildren(...(now.nodes.length ? now.nodes.map((n) => h("li", {}, name(n.name), n.server ? [" ", h("span", { class: "hint" }, name(n.server, "id"))] : "")) : [h("li", { class: "empty" }, "The store names none.")]));
	}

	known("", "");
	const stop = listen("v1/overview/events?show=health", (kind, data) => {
		if (kind === "health") draw(data);
	}, (problem) => {
		news.hidden = false;
		setText(news, problem.status === 403 ? "Health is for those who may read all locks." : "It cannot be shown: " + problem.message + ".");
	});
	return () => {
		document.title = "Leasehold";
		stop();
	};
}
