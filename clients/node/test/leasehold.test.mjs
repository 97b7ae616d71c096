// Run against a service: LEASEHOLD_URL is its address, LEASEHOLD_PID its process.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import os from "node:os";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, Held, Lost, Refused, Unavailable } from "../index.mjs";

if (!process.env.LEASEHOLD_URL || !process.env.LEASEHOLD_PID) {
	console.error("the tests need a service that they may stop: set LEASEHOLD_URL to its address and LEASEHOLD_PID to its process");
	process.exit(1);
}
const url = process.env.LEASEHOLD_URL;
const pid = Number(process.env.LEASEHOLD_PID);
const client = new Client(url);
const fresh = (t) => `${t.name}/${randomUUID()}`;

async function eventually(ok, what) {
	for (const end = performance.now() + 30_000; !(await ok()); await sleep(20)) {
		assert.ok(performance.now() < end, `not within 30 s: ${what}`);
	}
}

const waiting = (name, n) => eventually(async () => (await client.inspect(name)).waiters.length === n, `${n} waiters`);

async function breakIt(name, reason) {
	const { holders } = await client.inspect(name);
	const response = await fetch(`${url}/v1/locks/${encodeURIComponent(name)}:break`, {
		method: "POST",
		body: JSON.stringify({ leaseId: holders[0].leaseId, reason }),
	});
	assert.equal(response.status, 200);
}

test("a lock holds and is released", async (t) => {
	const name = fresh(t);
	const lease = await client.lock(name);
	assert.ok(lease.token > 0 && lease.held && lease.remaining > 0);
	lease.check();
	await assert.rejects(client.tryLock(name), (error) => error instanceof Held && error.holders[0].owner === client.owner);
	await lease.release();
	assert.ok(!lease.held && lease.remaining === 0);
	assert.throws(() => lease.check(), Lost);
	await lease.release(); // of no effect
	const again = await client.tryLock(name);
	assert.ok(again.token > lease.token);
	await again[Symbol.asyncDispose]();
	await (await client.tryLock(name)).release();
});

test("a wait ends in time and leaves the queue", async (t) => {
	const name = fresh(t);
	await client.with(name, async () => {
		await assert.rejects(client.lock(name, { wait: 300 }), (error) => {
			assert.ok(error instanceof Held && error.message.endsWith(`is held by ${client.owner}`), error);
			return error.holders[0].owner === client.owner;
		});
		await waiting(name, 0);
	});
});

test("a look that hangs does not delay the end of a wait", async (t) => {
	const hang = ({ signal }) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
	const deaf = new Client(url, { fetch: (where, init) => (init.method === "GET" ? hang(init) : fetch(where, init)) });
	const name = fresh(t);
	await client.with(name, async () => {
		const began = performance.now();
		await assert.rejects(deaf.lock(name, { wait: 300 }), (error) => error instanceof Held && /held by others/.test(error.message));
		assert.ok(performance.now() - began < 20_000);
	});
});

test("a wait that is aborted leaves nothing", async (t) => {
	const name = fresh(t);
	const lease = await client.lock(name);
	const stop = new AbortController();
	const waiter = client.lock(name, { signal: stop.signal });
	await waiting(name, 1);
	stop.abort(new Error("the caller's reason"));
	await assert.rejects(waiter, /the caller's reason/);
	await waiting(name, 0);
	await lease.release();
	await eventually(async () => (await client.inspect(name)).holders.length === 0, "the lock is free");
});

test("many take turns", async (t) => {
	const name = fresh(t);
	let inside = 0;
	let turns = 0;
	const one = () =>
		client.with(name, async () => {
			assert.equal(++inside, 1);
			turns++;
			await sleep(10);
			inside--;
		});
	await Promise.all(Array.from({ length: 20 }, one));
	assert.equal(turns, 20);
});

test("readers and places", async (t) => {
	const name = fresh(t);
	const readers = [await client.lock(name, { shared: true }), await client.lock(name, { shared: true })];
	await assert.rejects(client.tryLock(name), Held);
	await Promise.all(readers.map((r) => r.release()));
	const places = [await client.lock(name, { limit: 3, permits: 2 }), await client.lock(name, { limit: 3, ttl: 600 })];
	assert.deepEqual(places.map((p) => p.places), [[0, 1], [2]]);
	const stop = new AbortController();
	const waiter = client.lock(name, { limit: 3, signal: stop.signal });
	await eventually(() => places[1].wanted, "a holder knows of the waiter");
	stop.abort();
	await assert.rejects(waiter);
	await eventually(() => !places[1].wanted, "a holder knows that the waiter has left");
	await assert.rejects(client.tryLock(name, { limit: 3 }), Held);
	await assert.rejects(client.tryLock(name, { limit: 4 }), (error) => error instanceof Refused && error.type.endsWith("#mismatch"));
	await Promise.all(places.map((p) => p.release()));
});

test("renewal keeps it", async (t) => {
	await client.with(fresh(t), () => sleep(13_000), { ttl: 12_000 });
});

test("a break is a loss", async (t) => {
	const name = fresh(t);
	const lease = await client.lock(name, { ttl: 9_000 });
	const lost = new Promise((told) => lease.signal.addEventListener("abort", told));
	await breakIt(name, "maintenance");
	await lost;
	assert.ok(lease.signal.reason instanceof Lost);
	assert.throws(() => lease.check(), /the lease was broken: maintenance/);
	await assert.rejects(lease.release(), Lost);
});

test("the error of the work is not hidden by a loss", async (t) => {
	const name = fresh(t);
	const work = async (lease) => {
		await breakIt(name, "maintenance");
		await eventually(() => !lease.held, "the loss");
		throw new TypeError("of the work");
	};
	await assert.rejects(client.with(name, work, { ttl: 9_000 }), TypeError);
});

test("a service that hangs is a loss by the clock", async (t) => {
	const lease = await client.lock(fresh(t), { ttl: 2_000 });
	process.kill(pid, "SIGSTOP");
	try {
		await eventually(() => !lease.held, "the end of the lease");
	} finally {
		process.kill(pid, "SIGCONT");
	}
	await assert.rejects(lease.release(), (error) => error instanceof Lost && /the lease was lost: .*not renewed in time/.test(error.message));
});

test("a renewal that hangs does not delay the loss", async (t) => {
	const deaf = (where, init) => (init.method === "PUT" ? new Promise(() => {}) : fetch(where, init));
	const lease = await new Client(url, { fetch: deaf }).lock(fresh(t), { ttl: 6_000 });
	await eventually(() => lease.signal.aborted, "the loss is told"); // and nobody looks at lease.held
	await assert.rejects(lease.release(), Lost);
});

test("a lease does not outlive its time in a machine that is suspended", async (t) => {
	const lease = await client.lock(fresh(t), { ttl: 600_000 });
	const { uptime } = os;
	try {
		os.uptime = () => uptime() + 500;
		assert.ok(lease.held && lease.remaining < 100_000);
		os.uptime = () => uptime() + 600;
		assert.ok(!lease.held && lease.signal.reason instanceof Lost);
	} finally {
		os.uptime = uptime;
	}
	await assert.rejects(lease.release(), Lost);
}, { skip: process.platform !== "linux" && "performance.now() goes on elsewhere" });

test("a lock waits through an outage", async (t) => {
	process.kill(pid, "SIGSTOP");
	setTimeout(() => process.kill(pid, "SIGCONT"), 1_000);
	await client.with(fresh(t), (lease) => assert.ok(lease.held), { wait: 60_000 });
});

test("a service that is not there is unavailable", async () => {
	const nobody = new Client("http://127.0.0.1:2", { maxOutage: 300 });
	for (const wait of [0, 5_000, undefined]) await assert.rejects(nobody.lock("x", { wait }), (error) => error instanceof Unavailable && /http:\/\/127\.0\.0\.1:2 does not answer: ./.test(error.message));
});

test("what is wrong with a call is said at once", async () => {
	for (const wrong of ["", "127.0.0.1:8080", "redis://h", "http://", "http://h?token=secret", "http://:secret@h"]) {
		assert.throws(() => new Client(wrong), (error) => error instanceof TypeError && !error.message.includes("secret"));
	}
	for (const none of [undefined, null, 8080]) {
		assert.throws(() => new Client(none), /needs the URL of a service as a string, .* and not (undefined|null|number)/);
	}
	await assert.rejects(client.lock("x", { permits: 2 }), RangeError);
});

test("answers that are lost, or a proxy's own, are asked for again", async (t) => {
	for (const spoil of [() => Promise.reject(new TypeError("fetch failed")), () => Promise.resolve(new Response("", { status: 404 }))]) {
		const spoilt = new Set();
		const lossy = async (where, init) => {
			const response = await fetch(where, init);
			const request = init.method + where;
			if (spoilt.has(request)) return response;
			spoilt.add(request);
			await response.arrayBuffer();
			return spoil();
		};
		const name = fresh(t);
		await new Client(url, { fetch: lossy }).with(name, (lease) => assert.ok(lease.held));
		assert.deepEqual((await client.inspect(name)).holders, []);
	}
});

// lossy is a client that loses the first answer to each request, and notes the ids of leases.
function lossy(ids = new Set()) {
	const lost = new Set();
	return new Client(url, {
		fetch: async (where, init) => {
			if (where.endsWith("/v1/locks")) ids.add(JSON.parse(init.body).leaseId);
			const response = await fetch(where, init);
			const request = init.method + where;
			if (lost.has(request)) return response;
			lost.add(request);
			await response.arrayBuffer();
			throw new TypeError("fetch failed");
		},
	});
}

test("a refusal after a lost answer leaves nothing on its way", async (t) => {
	const name = fresh(t);
	const ids = new Set();
	const holder = await client.lock(name);
	await assert.rejects(lossy(ids).tryLock(name), Held);
	await holder.release();
	for (const leaseId of ids) {
		const late = await fetch(`${url}/v1/locks/${encodeURIComponent(name)}`, { method: "POST", body: JSON.stringify({ leaseId }) });
		assert.equal(late.status, 410);
	}
});

test("no name meets another one", async () => {
	const names = [".", "..", "./data", "data", "a/../b", "b", "a//b", "a/b", "a/b/", "a%2Fb", "/", "x:break", "?", "#", "é"];
	const leases = await Promise.all(names.map((name) => client.tryLock(name)));
	for (const [i, name] of names.entries()) {
		const { key, holders } = await client.inspect(name);
		assert.deepEqual([key, holders.map((h) => h.leaseId)], [name, [leases[i].id]]);
		await leases[i].release();
		assert.deepEqual((await client.inspect(name)).holders, []);
	}
});

test("a lease that was released by somebody else was lost", async (t) => {
	const lease = await client.lock(fresh(t), { ttl: 6_000 });
	await fetch(`${url}/v1/locks/${encodeURIComponent(lease.name)}/leases/${lease.id}`, { method: "DELETE" });
	await eventually(() => !lease.held, "the loss");
	await assert.rejects(lease.release(), (error) => error instanceof Lost && /the lease was lost: .*released/.test(error.message));
});

test("a break is a loss also if its first answer is lost", async (t) => {
	const name = fresh(t);
	const lease = await lossy().lock(name);
	await breakIt(name, "maintenance");
	await assert.rejects(lease.release(), /the lease was broken: maintenance/);
});
