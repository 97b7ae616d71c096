// Asking the service, again and again, and who asks.

// The token is kept here, in memory: it is gone when the page is closed.
let token = "";

const listeners = { state: () => {}, refused: () => {} };

// onState sets what is told of the connection: live, silent if the store does not answer, busy if
// the service asks to wait, connecting, lost or paused.
export const onState = (f) => { listeners.state = f; };

// onRefused sets what is called when the service wants a token, or another one.
export const onRefused = (f) => { listeners.refused = f; };

// answers tells whether the store answered the last request.
let answers = true;
const alive = () => listeners.state(answers ? "live" : "silent");

// storeAnswers is called by parts of the page with what they were told of the store.
export function storeAnswers(does) {
	answers = does;
	alive();
}

export const setToken = (text) => { token = text; };
export const hasToken = () => token !== "";

const headers = (more) => (token ? { ...more, Authorization: "Bearer " + token } : { ...more });

// A request that hears nothing for this long is given up: a stream speaks every 5 s.
const silence = 12000;

// After this time nobody looks at a page that is hidden.
const hiddenFor = 30000;

// Problem is an answer that is none.
export class Problem extends Error {
	constructor(status, body) {
		super((body && (body.detail || body.title)) || `the service answered ${status}`);
		this.status = status;
		this.isOfStore = String(body?.type).endsWith("#unavailable");
		this.isBusy = status === 429 || String(body?.type).endsWith("#overloaded");
	}
}

async function ask(path, options) {
	const response = await fetch(path, { ...options, headers: headers(options.headers), credentials: "same-origin", cache: "no-store" });
	if (response.ok) return response;
	let body = null;
	try {
		body = await response.json();
	} catch { /* a proxy speaks for itself */ }
	throw new Problem(response.status, body);
}

// get asks the service for something.
export const get = (path, signal, accept = "application/json") => ask(path, { signal, headers: { Accept: accept } });

// send asks the service for something to be done.
export async function send(method, path, body) {
	const response = await ask(path, { method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
	return response.json();
}

// repeat calls turn again and again, pause ms after it has ended, or as many as it returns, until
// the function that repeat returns is called. A turn calls heard when the service speaks. failed is told of an answer
// for which asking again is of no use.
export function repeat(turn, pause, failed) {
	let ended = false;
	let paused = false;
	let abort = null;
	let timer = 0;
	let hiding = 0;
	let tries = 0;

	async function next() {
		const mine = abort = new AbortController();
		let watch = 0;
		let rest;
		let state = "lost"; // until something is heard
		const wait = () => {
			clearTimeout(watch);
			watch = setTimeout(() => mine.abort(), silence);
		};
		wait();
		try {
			rest = await turn(mine.signal, () => {
				wait();
				if (mine.signal.aborted) return;
				state = "";
				tries = 0;
				alive();
			});
		} catch (problem) {
			if (problem instanceof Problem && !ended) {
				if (refused(problem)) return;
				state = problem.isOfStore ? "silent" : problem.isBusy ? "busy" : "lost";
				answers = answers && !problem.isOfStore;
			}
		} finally {
			clearTimeout(watch);
		}
		if (ended || paused || mine !== abort) return;
		if (state) listeners.state(state);
		timer = setTimeout(next, state ? Math.min(500 * 2 ** tries++, 5000) * (0.7 + 0.6 * Math.random()) : rest ?? pause);
	}

	function refused(p) {
		if (p.status >= 500 && p.status !== 501 || p.status === 429) return false;
		ended = true;
		if (p.status === 401) {
			listeners.state("refused");
			listeners.refused(hasToken());
		} else {
			listeners.state("live");
			failed(p);
		}
		return true;
	}

	function stop() {
		clearTimeout(timer);
		clearTimeout(hiding);
		abort.abort();
	}

	// A page that nobody sees costs nothing.
	function seen() {
		if (ended) return;
		clearTimeout(hiding);
		if (document.hidden) {
			hiding = setTimeout(() => {
				paused = true;
				stop();
				listeners.state("paused");
			}, hiddenFor);
		} else if (paused || tries > 0) {
			paused = false;
			stop();
			next();
		}
	}

	document.addEventListener("visibilitychange", seen);
	next();
	return () => {
		ended = true;
		document.removeEventListener("visibilitychange", seen);
		stop();
	};
}

// poll asks for JSON again and again, at the path that a function returns. What on returns is the
// pause before the next time, if it is a number.
export function poll(path, pause, on, failed) {
	return repeat(async (signal, heard) => {
		const data = await (await get(path(), signal)).json();
		heard();
		return signal.aborted ? undefined : on(data);
	}, pause, failed);
}

// listen follows a stream of events, over and over. on is told of the name and data of each.
export function listen(path, on, failed) {
	return repeat(async (signal, heard) => {
		const response = await get(path, signal, "text/event-stream");
		const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		for (;;) {
			const { value, done } = await reader.read();
			if (done || signal.aborted) return;
			heard();
			const parts = (rest + value).split("\n\n");
			rest = parts.pop();
			for (const text of parts) event(text, on);
		}
	}, 50, failed);
}

function event(text, on) {
	let kind = "message";
	let data = "";
	for (const line of text.split("\n")) {
		if (line.startsWith("event: ")) kind = line.slice(7);
		else if (line.startsWith("data: ")) data += line.slice(6);
	}
	if (data) on(kind, JSON.parse(data));
}
