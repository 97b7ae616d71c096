// The service's events, and who asks for them.

// The token is kept here, in memory: it is gone when the page is closed.
let token = "";

const listeners = { state: () => {}, refused: () => {} };

// onState sets what is told of the connection: live, silent if the store does not answer, connecting,
// lost or paused.
export const onState = (f) => { listeners.state = f; };

// onRefused sets what is called when the service wants a token, or another one.
export const onRefused = (f) => { listeners.refused = f; };

// answers tells that the store answered, as far as the last event said.
let answers = true;
const alive = () => listeners.state(answers ? "live" : "silent");

// storeAnswers is called by pages with what their events say of the store.
export function storeAnswers(does) {
	answers = does;
	alive();
}

export const setToken = (text) => { token = text; };
export const hasToken = () => token !== "";

const headers = (more) => (token ? { ...more, Authorization: "Bearer " + token } : { ...more });

// Silence for this long means that the connection is broken: the service speaks every 5 s.
const silence = 12000;

// After this time nobody looks at a page that is hidden.
const hiddenFor = 30000;

// Problem is an answer that is none.
export class Problem extends Error {
	constructor(status, body) {
		super((body && (body.detail || body.title)) || `the service answered ${status}`);
		this.status = status;
	}
}

async function problem(response) {
	let body = null;
	try {
		body = await response.json();
	} catch { /* a proxy speaks for itself */ }
	return new Problem(response.status, body);
}

// send asks the service for something to be done.
export async function send(method, path, body) {
	const response = await fetch(path, {
		method, headers: headers({ "Content-Type": "application/json" }), body: JSON.stringify(body),
		credentials: "same-origin", cache: "no-store",
	});
	if (!response.ok) throw await problem(response);
	return response.json();
}

// listen follows a stream of events, over and over, until the function that it returns is
// called. on is told of the name and data of each; failed of an answer that is none, for
// which asking again is of no use.
export function listen(path, on, failed) {
	answers = true;
	let ended = false;
	let paused = false;
	let abort = new AbortController();
	let timer = 0;
	let tries = 0;

	async function connect() {
		abort = new AbortController();
		const mine = abort;
		let watch = 0;
		const heard = () => {
			clearTimeout(watch);
			watch = setTimeout(() => mine.abort(), silence);
		};
		heard();
		try {
			const response = await fetch(path, {
				headers: headers({ Accept: "text/event-stream" }), signal: mine.signal, credentials: "same-origin", cache: "no-store",
			});
			if (response.ok) await read(response.body, heard);
			else refused(await problem(response));
		} catch { /* the connection is lost */ } finally {
			clearTimeout(watch);
		}
		if (!ended && !paused && mine === abort) again();
	}

	function refused(p) {
		if (ended || p.status >= 500 && p.status !== 501 || p.status === 429) return;
		ended = true;
		if (p.status === 401) {
			listeners.state("refused");
			listeners.refused(hasToken());
		} else {
			listeners.state("live");
			failed(p);
		}
	}

	async function read(body, heard) {
		const reader = body.pipeThrough(new TextDecoderStream()).getReader();
		let rest = "";
		for (;;) {
			const { value, done } = await reader.read();
			if (done || ended) return;
			heard();
			tries = 0;
			alive();
			rest += value;
			for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
				event(rest.slice(0, end));
				rest = rest.slice(end + 2);
			}
		}
	}

	function event(text) {
		let kind = "message";
		let data = "";
		for (const line of text.split("\n")) {
			if (line.startsWith("event: ")) kind = line.slice(7);
			else if (line.startsWith("data: ")) data += line.slice(6);
		}
		if (data && !ended) on(kind, JSON.parse(data));
	}

	// again connects anew: at once for the first time, since a stream ends by itself now and
	// then, and later and later while nobody answers.
	function again() {
		if (tries > 0) listeners.state("lost");
		const pause = tries === 0 ? 50 : Math.min(500 * 2 ** (tries - 1), 5000) * (0.7 + 0.6 * Math.random());
		timer = setTimeout(connect, pause);
		tries++;
	}

	// A page that nobody sees costs nothing.
	function seen() {
		if (document.hidden) {
			timer = setTimeout(() => {
				paused = true;
				listeners.state("paused");
				abort.abort();
			}, hiddenFor);
			return;
		}
		clearTimeout(timer);
		if (paused || tries > 0) {
			paused = false;
			abort.abort();
			connect();
		}
	}

	document.addEventListener("visibilitychange", seen);
	connect();
	return () => {
		ended = true;
		clearTimeout(timer);
		document.removeEventListener("visibilitychange", seen);
		abort.abort();
	};
}
