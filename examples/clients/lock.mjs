#!/usr/bin/env node
// A lock of `leasehold serve`, with Node's fetch alone.
//
//	const lease = await acquire("http://127.0.0.1:8080", "orders/42");
//	try {
//		await charge(lease.token, { signal: lease.signal }); // which aborts when the lease is lost
//	} finally {
//		await lease.release();
//	}
//
// As a program it runs a command while it holds the lock:
//
//	LEASEHOLD_URL=http://127.0.0.1:8080 node lock.mjs NAME COMMAND [ARG…]
//
// The command sees its fencing token as LEASEHOLD_TOKEN. The exit code is its
// own, or 79 if the lock was lost: the command was killed before that. Signals
// are passed on to it. Where a bearer token is needed, LEASEHOLD_AUTH has it.

import { spawn } from "node:child_process";
import { randomUUID } from "node:crypto";
import { constants, hostname, uptime } from "node:os";
import { fileURLToPath } from "node:url";

// Milliseconds since a moment before. On Linux performance.now() stands still while the
// machine is suspended, and leases do not, so what its uptime has gained is added.
let suspended = 0;
const ahead = () => (process.platform === "linux" ? uptime() * 1_000 - performance.now() : 0);
const before = ahead();
const now = () => performance.now() + (suspended = Math.max(suspended, ahead() - before));

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// What the type of every problem of the service begins with.
const problems = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#";

/** The service answered with a problem that asking again does not change. */
export class Refused extends Error {}

/** The service did not answer for `outage` milliseconds, or cannot be used. The message says why. */
export class Unavailable extends Error {}

// How many milliseconds a lock waits for a service that does not answer.
const outage = 30_000;

/** The lease ended before it was released. */
export class Lost extends Error {}

/** Waits for a lock and returns its lease, which is renewed until its release. */
export async function acquire(base, name, options = {}) {
	const lease = new Lease(base, name, options);
	const asked = now();
	try {
		await lease.take();
	} catch (error) {
		await lease.release().catch(() => {}); // a request may still be on its way
		throw error;
	}
	if (now() - asked > lease.ttl / 3) {
		// The lease began at some time during the wait.
		for (let i = 0; i < 3 && !lease.signal.aborted && !(await lease.renew()); i++);
	} else {
		lease.extend(asked);
	}
	if (!lease.held) await lease.release(); // which throws Lost
	lease.keep();
	return lease;
}

class Lease {
	#base;
	#name;
	#bearer;
	#deadline = 0;
	#timer; // of the next renewal
	#end; // of the lease
	#released = false; // or its release has begun
	#abort = new AbortController();

	constructor(base, name, { ttl = 30_000, owner = `${hostname()}:${process.pid}`, bearer } = {}) {
		this.#base = base;
		this.#name = name;
		this.#bearer = bearer;
		// The lease id makes every request repeatable: one that was not
		// answered is sent again, and has the effect of one.
		this.id = randomUUID();
		this.owner = owner;
		this.ttl = ttl;
		this.token = 0;
		this.signal = this.#abort.signal;
	}

	/** Milliseconds until the lease is over unless it is renewed. */
	get remaining() {
		return this.held ? Math.max(this.#deadline - now(), 0) : 0;
	}

	/** Compares the clock: true only while nobody else can have the lock. False once its
	 * release has begun. */
	get held() {
		if (this.#released) return false;
		if (!this.signal.aborted && now() >= this.#deadline) {
			this.lose("not renewed in time");
		}
		return !this.signal.aborted;
	}

	lose(why) {
		this.#abort.abort(new Lost(`${this.#name}: ${why}`));
	}

	/** Gives the lock back; throws Lost if the lease had ended before. */
	async release() {
		this.#released = true;
		clearTimeout(this.#timer);
		clearTimeout(this.#end);
		for (let attempt = 0; attempt < 3; attempt++) {
			const { status } = await this.#ask("POST", "/leases:release", {}, 5_000);
			if (status === 200) break;
			if (status === 410) {
				this.lose("it was gone at its release");
				break;
			}
		}
		this.signal.throwIfAborted();
	}

	async take() {
		const body = { ttlMs: this.ttl, waitMs: 30_000, owner: this.owner };
		let heard = now();
		for (;;) {
			const { status, answer, final, cause } = await this.#ask("POST", "/locks", body, 40_000);
			if (final || (status === 0 && now() - heard > outage)) throw new Unavailable(answer.detail, { cause });
			if (status > 0) heard = now();
			if (status === 200 || status === 201) {
				this.token = answer.token;
				return;
			}
			if (status === 202) continue; // still queued: ask again, and keep the place
			if (status === 410) throw new Lost(`${this.#name}: broken before the answer`);
			if ((status > 0 && status < 500 && status !== 429) || status === 501) {
				throw new Refused(answer.detail ?? `status ${status}`);
			}
			await sleep(answer.retryAfterMs ?? 1_000);
		}
	}

	// Counted from before the request was sent: the service's clock may have
	// started at any moment since. Clocks differ by 1 % at most.
	extend(sent) {
		this.#deadline = sent + this.ttl * 0.99 - 2;
		this.watch();
	}

	/** Aborts the signal at the end of the lease, also while a renewal hangs. */
	watch() {
		clearTimeout(this.#end);
		if (this.#released) return;
		this.#end = setTimeout(() => this.held && this.watch(), Math.max(this.#deadline - now(), 1));
	}

	async renew() {
		const sent = now();
		const { status } = await this.#ask("PUT", "/leases", { ttlMs: this.ttl }, this.ttl / 6);
		if (status === 200) this.extend(sent);
		if (status === 410) this.lose("the service no longer has it");
		return status === 200;
	}

	keep(pause = this.ttl / 3) {
		this.#timer = setTimeout(async () => {
			if (this.#released || !this.held) return;
			const renewed = await this.renew().catch(() => false);
			if (!this.#released && this.held) this.keep(renewed ? this.ttl / 3 : this.ttl / 12);
		}, Math.min(pause, this.remaining));
	}

	/** Returns status and answer; status 0 if there was none of the service, and then the
	 * detail says why, and final that time does not heal it. */
	async #ask(method, path, body, timeout) {
		const headers = { "Content-Type": "application/json" };
		if (this.#bearer) headers.Authorization = `Bearer ${this.#bearer}`;
		const silence = (why) => ({ status: 0, answer: { detail: `${this.#base} does not answer: ${why}` } });
		try {
			// The name is in the body: a proxy, and fetch itself, may change a path.
			const text = JSON.stringify({ ...body, key: this.#name, leaseId: this.id });
			const response = await fetch(`${this.#base}/v1${path}`, {
				method, headers, body: text, redirect: "manual", signal: AbortSignal.timeout(timeout),
			});
			const { status } = response;
			const answer = await response.json().catch(() => undefined);
			const ours = response.ok ? answer?.leaseId === this.id : String(answer?.type).startsWith(problems);
			if (answer && ours && (answer.key ?? this.#name) !== this.#name) {
				// The proxy changes the release as well, which undoes it.
				return { ...silence(`it answers for lock ${JSON.stringify(answer.key)}, so a proxy changes the request`), final: true };
			}
			return answer && ours ? { status, answer } : silence(`status ${status} there is not of a leasehold service`);
		} catch (error) {
			const cause = error.cause ?? error;
			const final = /CERT|UNABLE_TO_VERIFY|WRONG_VERSION/.test(cause.code) || ["bad port", "unknown scheme"].includes(cause.message);
			return { ...silence(cause.message || cause.code), final, cause };
		}
	}
}

/** Runs a command under a lease, and kills it before the lease can end. Signals do not
 * end this program before the command, which would go on without the lock. */
async function run(lease, [command, ...args]) {
	const env = { ...process.env, LEASEHOLD_TOKEN: String(lease.token) };
	const tell = (signal) => {
		try {
			if (child.pid) process.kill(-child.pid, signal);
		} catch {
			// it has just ended
		}
	};
	for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) process.on(signal, tell); // before there is a command
	const child = spawn(command, args, { stdio: "inherit", env, detached: true });
	const over = new Promise((done, fail) => {
		child.on("error", fail);
		child.on("exit", (code, signal) => done(code ?? 128 + constants.signals[signal]));
	});
	const watch = setInterval(() => {
		if (lease.remaining > lease.ttl / 20) return;
		lease.lose("its end came near");
		tell("SIGKILL");
	}, Math.min(250, lease.ttl / 40));
	try {
		return await over;
	} finally {
		clearInterval(watch);
	}
}

async function main([name, ...command]) {
	if (command.length === 0) {
		console.error("usage: lock.mjs NAME COMMAND [ARG...]");
		return 64;
	}
	const { LEASEHOLD_URL: base = "http://127.0.0.1:8080", LEASEHOLD_AUTH: bearer } = process.env;
	try {
		const lease = await acquire(base, name, { bearer });
		try {
			return await run(lease, command);
		} finally {
			await lease.release();
		}
	} catch (error) {
		console.error(error.message);
		return error instanceof Lost ? 79 : 69;
	}
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
	process.exitCode = await main(process.argv.slice(2));
}
