// Locks across machines, by the HTTP service of Leasehold (`leasehold serve`).
// index.d.ts says what each name is for.

import { randomUUID } from "node:crypto";
import os from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

// What the type of every problem of the service begins with. An answer without it is a
// proxy's, and tells nothing of what the service has done.
const problems = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#";

// For how long one answer is held back by the service while the lock is waited for, and
// how long one request may take beyond that.
const poll = 30_000;
const timeout = 10_000;

// How long somebody whose wait is over waits to hear who holds the lock.
const glance = 1_000;

// Milliseconds since a moment before. On Linux performance.now() stands still while the
// machine is suspended, and leases do not. What the machine's uptime has gained on it is
// added; that is known to 10 ms, so a lease may seem to end as much earlier.
let suspended = 0;
const ahead = () => os.uptime() * 1_000 - performance.now();
const before = ahead();
const now =
	process.platform === "linux"
		? () => performance.now() + (suspended = Math.max(suspended, ahead() - before))
		: () => performance.now();

const disposal = Symbol.asyncDispose ?? Symbol.for("nodejs.asyncDispose");

export class LeaseholdError extends Error {
	get name() {
		return this.constructor.name;
	}
}

export class Held extends LeaseholdError {
	constructor(name, answer) {
		const holders = answer.holders ?? [];
		const by = holders.map((h) => h.owner ?? "?").join(", ") || "others";
		super(`lock ${JSON.stringify(name)} is held by ${by}`);
		this.holders = holders;
		this.position = answer.position ?? 0;
	}
}

export class Refused extends LeaseholdError {
	constructor(name, status, answer) {
		super(`lock ${JSON.stringify(name)}: ${answer.detail ?? answer.title ?? status}`);
		this.status = status;
		this.type = answer.type ?? "";
	}
}

export class Lost extends LeaseholdError {}

export class Unavailable extends LeaseholdError {}

const transient = (status) => status === 429 || (status >= 500 && status !== 501);

// The error of a request without success, with its cause.
function failure(name, { status, answer, url, cause }) {
	if (status > 0 && !transient(status)) return new Refused(name, status, answer);
	const detail = answer.detail ?? answer.title ?? `status ${status}`;
	return new Unavailable(`lock ${JSON.stringify(name)}: ${status > 0 ? `${url}: ${detail}` : detail}`, cause && { cause });
}

// Codes of errors that a request has however often it is sent: one side of the connection is
// not encrypted, or refuses the certificate of the other one.
const finalCodes = /CERT|UNABLE_TO_VERIFY|UNKNOWN_CA|WRONG_VERSION/;

// What servers answer that were not spoken to in TLS.
const wantsTLS = /HTTP request to an HTTPS server|plain HTTP request was sent to HTTPS port|plain HTTP to an SSL-enabled server/;

// How a lease has ended that the service does not have, and why if it does not say.
function endOfLease(answer, why) {
	if (!answer.broken) return `the lease was lost: ${why}`;
	return answer.reason ? `the lease was broken: ${answer.reason}` : "the lease was broken";
}

export class Client {
	#url;
	#bearer;
	#fetch;

	constructor(url, { bearer, owner = `${os.hostname()}:${process.pid}`, maxOutage = 30_000, fetch = globalThis.fetch } = {}) {
		this.#url = service(url);
		if (bearer !== undefined && !/^[\x20-\x7e]*$/.test(bearer)) {
			throw new TypeError("the bearer token has a character that no HTTP header can have"); // and is not shown
		}
		this.#bearer = bearer;
		this.#fetch = fetch;
		this.owner = owner;
		this.maxOutage = maxOutage;
	}

	async lock(name, options = {}) {
		const ask = (...request) => this.#ask(...request);
		const lease = new Lease(ask, name, { owner: this.owner, maxOutage: this.maxOutage, ...options });
		await lease.take();
		return lease;
	}

	tryLock(name, options = {}) {
		return this.lock(name, { ...options, wait: 0 });
	}

	async with(name, work, options = {}) {
		const lease = await this.lock(name, options);
		let result;
		try {
			result = await work(lease);
		} catch (error) {
			await lease.release().catch(() => {}); // the work's own error says more
			throw error;
		}
		await lease.release();
		return result;
	}

	async inspect(name) {
		const got = await this.#ask("GET", lookAt(name), undefined, timeout, name);
		if (got.status !== 200) throw failure(name, got);
		return got.answer;
	}

	// Status 0 is an answer that is not the service's, or none. The detail says which, cause is
	// the error, and final tells that time does not heal it. A success about a lease has to
	// name it, and no answer names another lock.
	async #ask(method, where, body, within, name, lease, signal) {
		const headers = { "Content-Type": "application/json" };
		if (this.#bearer) headers.Authorization = `Bearer ${this.#bearer}`;
		const ends = [AbortSignal.timeout(Math.ceil(Math.max(within, 50))), ...(signal ? [signal] : [])];
		const both = new AbortController();
		for (const end of ends) {
			if (end.aborted) both.abort(end.reason);
			end.addEventListener("abort", () => both.abort(end.reason), { once: true, signal: both.signal });
		}
		try {
			const response = await this.#fetch(this.#url + where, {
				method,
				headers,
				body: body && JSON.stringify(body),
				redirect: "manual", // a lock that is asked for elsewhere is another lock
				signal: both.signal,
			});
			const { status } = response;
			const text = await response.text();
			const answer = parsed(text);
			const ours = response.ok ? answer?.leaseId === lease : String(answer?.type).startsWith(problems);
			if (answer && ours) {
				if (answer.key === undefined || answer.key === name) return { status, answer, url: this.#url };
				return { ...this.#silence(`it answers for lock ${JSON.stringify(answer.key)} instead of ${JSON.stringify(name)}, so a proxy changes the request`, true), elsewhere: true };
			}
			if (status === 400 && wantsTLS.test(text)) return this.#silence("the service speaks TLS there; its URL begins with https://", true);
			const hint = status === 404 ? "; its URL ends with the path of a proxy, if it is behind one" : "";
			return this.#silence(`what answers there, with status ${status}, is not that of a leasehold service${hint}`);
		} catch (error) {
			const cause = error.cause ?? error;
			const why = cause.message || cause.code || error.message;
			return { ...this.#silence(why, finalCodes.test(cause.code) || why === "bad port"), cause };
		} finally {
			both.abort(); // forgets the listeners
		}
	}

	#silence(why, final = false) {
		return { status: 0, answer: { detail: `${this.#url} ${final ? "cannot be used" : "does not answer"}: ${why}` }, final };
	}
}

function parsed(text) {
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

// The URL of a service, without a slash at its end.
function service(url) {
	if (typeof url !== "string") {
		throw new TypeError(`a client needs the URL of a service as a string, such as http://127.0.0.1:8080, and not ${url === null ? url : typeof url}`);
	}
	const parts = URL.canParse(url) ? new URL(url) : { protocol: "" };
	if (parts.username || parts.password) throw new TypeError("a token does not belong into the URL: give bearer");
	if (!/^https?:$/.test(parts.protocol) || parts.search || parts.hash) {
		throw new TypeError(`${JSON.stringify(url.split("?")[0])} is not the URL of a service, such as http://127.0.0.1:8080`);
	}
	return url.replace(/\/+$/, "");
}

// The name of a lock is in the body or the query: a proxy, and fetch itself, may change a path.
const lookAt = (name, more) => `/v1/locks:inspect?${new URLSearchParams({ name, ...more })}`;

class Lease {
	#ask;
	#terms;
	#ttl;
	#wait;
	#maxOutage;
	#stop; // the caller's signal
	#deadline = 0;
	#timer; // of the next renewal
	#end; // of the lease
	#released = false;
	#abort = new AbortController();

	constructor(ask, name, options) {
		const { ttl = 30_000, wait = Infinity, shared, limit, permits = 1, reentrant, labels, owner, maxOutage, signal } = options;
		if (permits !== 1 && !limit) throw new RangeError("permits counts places of limit, which is missing");
		if (!(ttl > 0) || !(wait >= 0)) throw new RangeError("ttl must be positive, and wait must not be negative");
		this.name = name;
		this.id = randomUUID(); // it makes every request repeatable
		this.token = 0;
		this.places = [];
		this.wanted = false;
		this.#ask = ask;
		this.#ttl = ttl;
		this.#wait = wait;
		this.#maxOutage = maxOutage;
		this.#stop = signal;
		this.#terms = { ttlMs: ttl, owner };
		if (shared || limit) this.#terms.mode = "shared";
		if (limit) Object.assign(this.#terms, { limit, permits });
		if (reentrant) this.#terms.reentrant = true;
		if (labels) this.#terms.labels = labels;
	}

	get signal() {
		return this.#abort.signal;
	}

	get held() {
		return !this.#released && this.#inTime();
	}

	get remaining() {
		return this.held ? Math.max(this.#deadline - now(), 0) : 0;
	}

	check() {
		if (!this.held) throw this.signal.reason ?? new Lost(`lock ${JSON.stringify(this.name)}: it was released`);
	}

	#inTime() {
		if (now() >= this.#deadline) this.#lose("the lease was lost: it was not renewed in time");
		return !this.signal.aborted;
	}

	#about(method, where, terms, within, stop) {
		return this.#ask(method, where, { ...terms, key: this.name, leaseId: this.id }, within, this.name, this.id, stop);
	}

	async take() {
		const began = now();
		await this.#queue(began);
		if (now() - began > this.#ttl / 3) {
			// The lease began at some time during the wait.
			for (let i = 0; i < 3 && !this.signal.aborted && !(await this.#renew()); i++);
		} else {
			this.#extend(began);
		}
		if (now() >= this.#deadline) {
			this.#released = true;
			clearTimeout(this.#end);
			await this.#giveBack();
			throw new Unavailable(`lock ${JSON.stringify(this.name)}: the service answered later than the lease lasts`);
		}
		this.#keep(this.#ttl / 3);
	}

	async #queue(began) {
		const end = began + this.#wait;
		let silent; // since when nothing was answered
		let doubt = false; // a request may still be on its way
		let pause = 50;
		const outage = Math.max(this.#maxOutage, 1_000); // a request that is not answered is not to take longer
		const fail = async (error) => {
			await this.#giveBack(5_000);
			throw error;
		};
		for (;;) {
			if (this.#stop?.aborted) await fail(this.#stop.reason);
			const left = Math.min(Math.max(end - now(), 0), poll, outage);
			const body = this.#wait > 0 ? { ...this.#terms, waitMs: Math.max(Math.floor(left), 1) } : this.#terms;
			const sent = now();
			const got = await this.#about("POST", "/v1/locks", body, left + Math.min(timeout, outage), this.#stop);
			const { status, answer } = got;
			if (status === 200 || status === 201) {
				this.token = answer.token ?? 0;
				this.places = answer.places ?? [];
				return;
			}
			if (this.#stop?.aborted) continue;
			if (got.final) {
				if (doubt || got.elsewhere) await this.#giveBack(5_000); // the proxy changes the release as well
				throw failure(this.name, got);
			}
			doubt ||= status === 0 || transient(status) || answer.repeated === true;
			const at = now();
			if (status === 202 || answer.type === `${problems}held`) {
				if (at >= end) {
					if (this.#wait > 0 || doubt) await this.#giveBack(); // the place in the queue, and what comes late
					throw new Held(this.name, this.#wait > 0 ? await this.#seen(answer) : answer);
				}
				silent = undefined;
				pause = 50;
				if (status !== 202) await this.#rest(Math.min(answer.retryAfterMs ?? 100, 1_000));
				continue;
			}
			if (status > 0 && !transient(status)) await fail(new Refused(this.name, status, answer));
			silent ??= sent;
			const patience = this.#wait === 0 ? Math.min(this.#maxOutage, timeout) : this.#maxOutage;
			if (at - silent >= patience || (this.#wait > 0 && at >= end)) await fail(failure(this.name, got));
			await this.#rest(answer.retryAfterMs ?? pause * (0.5 + Math.random() / 2));
			pause = Math.min(pause * 2, 1_000);
		}
	}

	// The answer to a wait, which does not tell who holds the lock, with what one more look
	// does tell.
	async #seen(answer) {
		const look = await this.#ask("GET", lookAt(this.name, { waiters: "false" }), undefined, glance, this.name, undefined, this.#stop);
		return look.status === 200 ? { ...answer, holders: look.answer.holders } : answer;
	}

	#rest(ms) {
		return sleep(ms, undefined, { signal: this.#stop }).catch(() => {}); // the caller looks at the signal
	}

	// Counted from before the request was sent: the store's clock may have started at any
	// moment since. Clocks differ by 1 % at most.
	#extend(sent) {
		this.#deadline = sent + this.#ttl * 0.99 - 2;
		this.#watch();
	}

	// Tells of the end in time, also while a renewal hangs.
	#watch() {
		clearTimeout(this.#end);
		if (this.#released) return;
		this.#end = setTimeout(() => this.held && this.#watch(), Math.max(this.#deadline - now(), 1));
	}

	#lose(why) {
		clearTimeout(this.#end);
		this.#abort.abort(new Lost(`lock ${JSON.stringify(this.name)}: ${why}`));
	}

	async #renew() {
		const sent = now();
		const { status, answer } = await this.#about("PUT", "/v1/leases", { ttlMs: this.#ttl }, this.#ttl / 6);
		if (status === 200) {
			this.wanted = answer.wanted ?? false;
			this.#extend(sent);
		} else if (status === 410) this.#lose(endOfLease(answer, answer.detail || "the service no longer has it"));
		return status === 200;
	}

	#keep(pause) {
		this.#timer = setTimeout(
			async () => {
				if (this.#released || !this.held) return;
				const confirmed = await this.#renew().catch(() => false); // whatever it was, the next try may succeed
				if (!this.#released && this.held) this.#keep(confirmed ? this.#ttl / 3 : this.#ttl / 12);
			},
			Math.max(Math.min(pause, this.#deadline - now()), 1),
		);
	}

	async release() {
		if (this.#released) return;
		const held = this.#inTime();
		this.#released = true;
		clearTimeout(this.#timer);
		clearTimeout(this.#end);
		const { status, answer } = await this.#giveBack();
		if (status === 410 && held && (answer.broken || now() < this.#deadline)) {
			this.#lose(endOfLease(answer, "it was gone at its release"));
		}
		this.signal.throwIfAborted();
		if (status === 0) throw new Unavailable(`lock ${JSON.stringify(this.name)}: the release was not confirmed`);
	}

	[disposal]() {
		return this.release();
	}

	// Status of the first answer, and the answer; 0 if there was none.
	async #giveBack(within = 15_000) {
		const end = now() + within;
		for (let attempt = 1; attempt <= 3 && now() < end; attempt++) {
			const { status, answer } = await this.#about("POST", "/v1/leases:release", {}, Math.min(5_000, end - now()));
			if (status === 200) return { status, answer };
			// A try that was not answered may have released it. It has not broken it.
			if (status === 410) return { status: attempt > 1 && !answer.broken ? 200 : 410, answer };
			await sleep(50 * attempt);
		}
		return { status: 0, answer: {} };
	}
}
