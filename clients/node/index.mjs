// Locks across machines, by the HTTP service of Leasehold (`leasehold serve`).
// index.d.ts says what each name is for.

import { randomUUID } from "node:crypto";
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

// What the type of every problem of the service begins with. An answer without it is a
// proxy's, and tells nothing of what the service has done.
const problems = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#";

// For how long one answer is held back by the service while the lock is waited for, and
// how long one request may take beyond that.
const poll = 30_000;
const timeout = 10_000;

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

const failure = (name, status, answer) =>
	status === 0 || transient(status)
		? new Unavailable(`lock ${JSON.stringify(name)}: ${answer.detail ?? "the service does not answer"}`)
		: new Refused(name, status, answer);

export class Client {
	#url;
	#bearer;
	#fetch;

	constructor(url, { bearer, owner = `${hostname()}:${process.pid}`, maxOutage = 30_000, fetch = globalThis.fetch } = {}) {
		this.#url = url.replace(/\/+$/, "");
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
		const { status, answer } = await this.#ask("GET", path(name), undefined, timeout);
		if (status !== 200) throw failure(name, status, answer);
		return answer;
	}

	// Status 0 is an answer that is not the service's, or none. A success about a lease
	// has to name it.
	async #ask(method, where, body, within, lease, signal) {
		const headers = { "Content-Type": "application/json" };
		if (this.#bearer) headers.Authorization = `Bearer ${this.#bearer}`;
		const ends = [AbortSignal.timeout(Math.ceil(Math.max(within, 50))), ...(signal ? [signal] : [])];
		const both = new AbortController();
		for (const end of ends) {
			if (end.aborted) both.abort();
			end.addEventListener("abort", () => both.abort(), { once: true, signal: both.signal });
		}
		try {
			const response = await this.#fetch(this.#url + where, {
				method,
				headers,
				body: body && JSON.stringify(body),
				redirect: "manual", // a lock that is asked for elsewhere is another lock
				signal: both.signal,
			});
			if (response.status === 204) return { status: 204, answer: {} };
			const answer = await response.json();
			const ours = response.ok ? answer.leaseId === lease : answer.type?.startsWith(problems);
			return ours ? { status: response.status, answer } : { status: 0, answer: {} };
		} catch {
			return { status: 0, answer: {} };
		} finally {
			both.abort(); // forgets the listeners
		}
	}
}

const path = (name) => `/v1/locks/${encodeURIComponent(name)}`;

class Lease {
	#ask;
	#path;
	#terms;
	#ttl;
	#wait;
	#maxOutage;
	#stop; // the caller's signal
	#deadline = 0;
	#timer;
	#released = false;
	#abort = new AbortController();

	constructor(ask, name, options) {
		const { ttl = 30_000, wait = Infinity, shared, limit, permits = 1, reentrant, labels, owner, maxOutage, signal } = options;
		if (!(ttl > 0) || !(wait >= 0)) throw new RangeError("ttl must be positive, and wait must not be negative");
		this.name = name;
		this.id = randomUUID(); // it makes every request repeatable
		this.token = 0;
		this.#ask = ask;
		this.#path = path(name);
		this.#ttl = ttl;
		this.#wait = wait;
		this.#maxOutage = maxOutage;
		this.#stop = signal;
		this.#terms = { leaseId: this.id, ttlMs: ttl, owner };
		if (shared || limit) this.#terms.mode = "shared";
		if (limit) Object.assign(this.#terms, { limit, permits });
		if (reentrant) this.#terms.reentrant = true;
		if (labels) this.#terms.labels = labels;
	}

	get signal() {
		return this.#abort.signal;
	}

	get held() {
		if (!this.#released && performance.now() >= this.#deadline) this.#lose("it was not renewed in time");
		return !this.signal.aborted;
	}

	get remaining() {
		return this.held ? Math.max(this.#deadline - performance.now(), 0) : 0;
	}

	check() {
		if (!this.held) throw this.signal.reason;
	}

	async take() {
		const began = performance.now();
		await this.#queue(began);
		if (performance.now() - began > this.#ttl / 3) {
			// The lease began at some time during the wait.
			for (let i = 0; i < 3 && !this.signal.aborted && !(await this.#renew()); i++);
		} else {
			this.#extend(began);
		}
		if (performance.now() >= this.#deadline) {
			this.#released = true;
			await this.#giveBack();
			throw new Unavailable(`lock ${JSON.stringify(this.name)}: the service answered later than the lease lasts`);
		}
		this.#keep(this.#ttl / 3);
	}

	async #queue(began) {
		const end = began + this.#wait;
		let silent; // since when nothing was answered
		let pause = 50;
		const fail = async (error) => {
			await this.#giveBack();
			throw error;
		};
		for (;;) {
			if (this.#stop?.aborted) await fail(this.#stop.reason);
			const left = Math.min(Math.max(end - performance.now(), 0), poll);
			const body = this.#wait > 0 ? { ...this.#terms, waitMs: Math.max(Math.floor(left), 1) } : this.#terms;
			const sent = performance.now();
			const { status, answer } = await this.#ask("POST", this.#path, body, left + timeout, this.id, this.#stop);
			if (status === 200 || status === 201) {
				this.token = answer.token;
				return;
			}
			if (this.#stop?.aborted) continue;
			const now = performance.now();
			if (status === 202 || answer.type === `${problems}held`) {
				if (now >= end) {
					const held = new Held(this.name, answer);
					if (this.#wait === 0) throw held;
					await fail(held); // and leaves the queue
				}
				silent = undefined;
				pause = 50;
				if (status !== 202) await this.#rest(Math.min(answer.retryAfterMs ?? 100, 1_000));
				continue;
			}
			if (status > 0 && !transient(status)) await fail(new Refused(this.name, status, answer));
			silent ??= sent;
			const patience = this.#wait === 0 ? Math.min(this.#maxOutage, timeout) : this.#maxOutage;
			if (now - silent >= patience || (this.#wait > 0 && now >= end)) await fail(failure(this.name, status, answer));
			await this.#rest(answer.retryAfterMs ?? pause * (0.5 + Math.random() / 2));
			pause = Math.min(pause * 2, 1_000);
		}
	}

	#rest(ms) {
		return sleep(ms, undefined, { signal: this.#stop }).catch(() => {}); // the caller looks at the signal
	}

	// Counted from before the request was sent: the store's clock may have started at any
	// moment since. Clocks differ by 1 % at most.
	#extend(sent) {
		this.#deadline = sent + this.#ttl * 0.99 - 2;
	}

	#lose(why) {
		this.#abort.abort(new Lost(`lock ${JSON.stringify(this.name)}: ${why}`));
	}

	async #renew() {
		const sent = performance.now();
		const { status, answer } = await this.#ask("PUT", `${this.#path}/leases/${this.id}`, { ttlMs: this.#ttl }, this.#ttl / 6, this.id);
		if (status === 200) this.#extend(sent);
		else if (status === 410) this.#lose(answer.reason || answer.detail || "the service no longer has it");
		return status === 200;
	}

	#keep(pause) {
		this.#timer = setTimeout(
			async () => {
				if (this.#released || !this.held) return;
				const confirmed = await this.#renew();
				if (!this.#released && this.held) this.#keep(confirmed ? this.#ttl / 3 : this.#ttl / 12);
			},
			Math.max(Math.min(pause, this.#deadline - performance.now()), 1),
		);
	}

	async release() {
		if (this.#released) return;
		const held = this.held;
		this.#released = true;
		clearTimeout(this.#timer);
		const status = await this.#giveBack();
		if (status === 410 && held && performance.now() < this.#deadline) this.#lose("it was gone at its release");
		this.signal.throwIfAborted();
		if (status === 0) throw new Unavailable(`lock ${JSON.stringify(this.name)}: the release was not confirmed`);
	}

	[disposal]() {
		return this.release();
	}

	// The status of the first answer; 0 if there was none.
	async #giveBack() {
		for (let attempt = 1; attempt <= 3; attempt++) {
			const { status } = await this.#ask("DELETE", `${this.#path}/leases/${this.id}`, undefined, 5_000, this.id);
			if (status === 200 || status === 204) return status;
			if (status === 410) return attempt > 1 ? 204 : 410; // a try that was not answered may have done it
			await sleep(50 * attempt);
		}
		return 0;
	}
}
