// The frame of the page: which part is shown, the state of the connection, and who looks.

import { h } from "./dom.js";
import { onState, onRefused, poll, setToken, hasToken } from "./live.js";
import { clock } from "./format.js";
import { locks } from "./locks.js";
import { lock } from "./lock.js";
import { health, sentence } from "./health.js";

const main = document.getElementById("main");
const live = document.getElementById("live");
const who = document.getElementById("who");
const unsafe = document.getElementById("unsafe");

let leave = null; // ends the part that is shown
let shown = ""; // what it is

// parts are by the first word of the address behind the hash.
const parts = { "": locks, lock, health };

function show(again) {
	const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
	const [part, ...rest] = path.split("/");
	const of = parts[part] ? part : "";
	const what = of + "/" + rest.join("/");
	// Another order or page of the table is the same part, which sees to it itself.
	if (!again && what === shown && leave && leave.query) {
		leave.query(new URLSearchParams(query));
		return;
	}
	if (leave) leave();
	const moved = shown !== "" && what !== shown;
	shown = what;
	main.replaceChildren();
	for (const [id, is] of [["nav-locks", of !== "health"], ["nav-health", of === "health"]]) {
		const link = document.getElementById(id);
		if (is) link.setAttribute("aria-current", "page");
		else link.removeAttribute("aria-current");
	}
	leave = parts[of](main, { name: decode(rest.join("/")), query: new URLSearchParams(query), known, store: () => store });
	if (moved) {
		main.focus({ preventScroll: true });
		scrollTo(0, 0);
	}
}

// warn shows what makes the store unsafe above every part, to those who may read all locks.
let calm = () => {};
let store = ""; // its URL without secrets, for those who may read all locks
function warn() {
	calm();
	unsafe.hidden = true;
	calm = poll(() => "v1/overview/health", 60000, (now) => {
		store = now.store;
		const all = now.findings.filter((f) => f.severity === "unsafe");
		unsafe.hidden = all.length === 0;
		unsafe.replaceChildren(...all.map((f) => h("li", { class: "notice bad" }, h("strong", {}, "The store is unsafe for locks"), ": ", sentence(f), ".")));
	}, () => {});
}

function decode(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

let heard = 0;
const then = () => (heard ? `: shown as of ${clock(heard)}` : "");
const states = {
	live: () => "Live",
	silent: () => "The store does not answer" + then(),
	busy: () => "The service is busy",
	connecting: () => "Connecting",
	lost: () => "Connection lost" + then(),
	paused: () => "Paused while nobody looks",
	refused: () => "Not signed in",
};

onState((state) => {
	if (["live", "busy"].includes(state)) heard = Date.now();
	if (live.dataset.state === state) return;
	live.dataset.state = state;
	live.replaceChildren(states[state]());
	document.body.classList.toggle("stale", ["lost", "silent"].includes(state));
});

// known shows who looks, as the service says.
function known(principal, mode) {
	if (!mode && who.dataset.text) return;
	const text = principal || (hasToken() ? "signed in" : "");
	if (who.dataset.text === text + mode) return;
	who.dataset.text = text + mode;
	who.replaceChildren(
		text ? h("bdi", {}, text) : "",
		mode === "read" ? h("span", { class: "mode", title: "The service offers no breaking on this page: see --ui" }, "read only") : "",
		hasToken() ? h("button", { type: "button", class: "quiet", onclick: out }, "Sign out") : "",
	);
}

function out() {
	setToken("");
	who.dataset.text = "";
	who.replaceChildren();
	start();
}

onRefused((again) => {
	if (main.querySelector(".sign-in")) return; // another part of the page was refused too
	calm();
	if (leave) leave();
	leave = null;
	const field = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
	const form = h("form", { class: "sign-in", onsubmit: (e) => {
		e.preventDefault();
		setToken(field.value.trim());
		start();
	} },
	h("h1", {}, "Sign in"),
	again ? h("p", { class: "notice bad", role: "alert" }, "The service does not know this token.") : null,
	h("p", {}, "The service asks who you are. Give a bearer token of its ", h("code", {}, "--auth-file"), " that may read."),
	h("label", { for: "token" }, "Token"), field,
	h("p", { class: "hint" }, "It stays in the memory of this page, and is gone when you close or reload it."),
	h("button", { type: "submit", class: "primary" }, "Sign in"));
	main.replaceChildren(form);
	field.focus();
});

document.getElementById("skip").addEventListener("click", (e) => {
	e.preventDefault();
	main.focus();
});

document.addEventListener("keydown", (e) => {
	const search = document.getElementById("search");
	const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement?.tagName || "");
	if (e.key === "/" && search && !typing && !e.ctrlKey && !e.metaKey && !e.altKey && !document.querySelector("dialog[open]")) {
		e.preventDefault();
		search.focus();
		search.select();
	}
});

function start() {
	show(true);
	warn();
}

addEventListener("hashchange", () => show(false));
start();
