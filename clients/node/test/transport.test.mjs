// Run without a service: a fetch in memory answers.

import assert from "node:assert/strict";
import { test } from "node:test";

import { acquire, Lost as CopiedLost, Unavailable as CopiedUnavailable } from "../../../examples/clients/lock.mjs";
import { Client, Lost, Unavailable } from "../index.mjs";

const problems = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#";
const bound = 60_000; // a test fails after it only if something hangs

const reply = (status, body) => new Response(status === 204 ? null : typeof body === "string" ? body : JSON.stringify(body), { status });

const verbs = { "POST /v1/locks": "acquire", "PUT /v1/leases": "renew", "POST /v1/leases:release": "release" };

// transport is a fetch that grants every lock and notes the requests by verb and name. answer may
// answer in its place: with a Response, or by an error.
function transport(answer = () => undefined) {
	const asked = [];
	const fetch = async (where, init) => {
		const { pathname } = new URL(where);
		const body = init.body ? JSON.parse(init.body) : {};
		const verb = verbs[`${init.method} ${pathname}`];
		asked.push(`${verb} ${body.key}`);
		const got = await answer(verb, body);
		return got || reply(verb === "acquire" ? 201 : 200, { key: body.key, leaseId: body.leaseId, token: 7 });
	};
	return { fetch, asked };
}

// failed is what fetch rejects with.
const failed = (message, code) => new TypeError("fetch failed", { cause: Object.assign(new Error(message), { code }) });

const hang = () => new Promise(() => {});

async function copied(answer, work) {
	const { fetch } = globalThis;
	const fake = transport(answer);
	globalThis.fetch = fake.fetch;
	try {
		return await work(fake);
	} finally {
		globalThis.fetch = fetch;
	}
}

test("what time does not heal rejects at once", { timeout: bound }, async (t) => {
	for (const error of [
		failed("self-signed certificate", "DEPTH_ZERO_SELF_SIGNED_CERT"),
		failed("certificate has expired", "CERT_HAS_EXPIRED"),
		failed("the altnames do not match", "ERR_TLS_CERT_ALTNAME_INVALID"),
		failed("wrong version number", "ERR_SSL_WRONG_VERSION_NUMBER"),
		failed("bad port"),
		reply(400, "Client sent an HTTP request to an HTTPS server.\n"),
	]) {
		const answer = () => (error instanceof Error ? Promise.reject(error) : error);
		const { fetch, asked } = transport(answer);
		await assert.rejects(new Client("https://service", { fetch }).lock("k"), (raised) => {
			assert.ok(raised instanceof Unavailable && raised.message.startsWith(`lock "k": https://service `), raised.message);
			return raised.cause === error.cause;
		});
		assert.deepEqual(asked, ["acquire k"]);
	}
});

test("the cause is in the message", { timeout: bound }, async () => {
	for (const [make, text] of [
		[() => Promise.reject(failed("connect ECONNREFUSED", "ECONNREFUSED")), "connect ECONNREFUSED"],
		[() => reply(404, "<html>"), "path of a proxy"],
		[() => reply(301, ""), "301"],
		[() => reply(200, "<html>"), "not that of a leasehold service"],
		[() => reply(200, "null"), "not that of a leasehold service"],
		[() => reply(503, { type: `${problems}unavailable`, detail: "the store is down" }), "the store is down"],
	]) {
		for (const wait of [0, 20_000]) {
			const client = new Client("http://service", { fetch: transport(make).fetch, maxOutage: 200 });
			await assert.rejects(client.lock("k", { wait }), (raised) => {
				assert.ok(raised instanceof Unavailable && raised.message.startsWith(`lock "k": http://service`) && raised.message.includes(text), raised.message);
				return true;
			});
		}
	}
});

test("a token that no header can have is refused and not shown", () => {
	for (const bearer of ["secret\n", "secret\u20ac"]) {
		assert.throws(() => new Client("http://service", { bearer }), (error) => error instanceof TypeError && !error.message.includes("secret"));
	}
});

test("no answer to a renewal ends the renewals", { timeout: bound }, async () => {
	const spoilt = [reply(200, "null"), reply(200, "[]"), reply(200, '{"leaseId'), reply(410, "null"), reply(410, { type: 5 }), reply(500, "")];
	let well;
	const renewed = new Promise((done) => (well = done));
	const { fetch } = transport((verb) => {
		if (verb !== "renew") return undefined;
		if (spoilt.length > 0) return spoilt.pop();
		well();
	});
	const lease = await new Client("http://service", { fetch }).lock("k", { ttl: 6_000 });
	await renewed;
	lease.check();
	await lease.release();
});

test("the file to copy tells of the end while a renewal hangs", { timeout: bound }, () =>
	copied((verb) => (verb === "renew" ? hang() : undefined), async () => {
		const lease = await acquire("http://service", "k", { ttl: 6_000 });
		await new Promise((told) => lease.signal.addEventListener("abort", told));
		assert.ok(lease.signal.reason instanceof CopiedLost);
		await assert.rejects(lease.release(), CopiedLost);
	}));

// renaming answers as behind a program that changes names: what is asked of ./data arrives as data.
const renaming = (verb, body) => (verb === "release" ? undefined : reply(201, { key: "data", leaseId: body.leaseId, token: 7 }));

test("an answer for another name rejects and is undone", { timeout: bound }, async () => {
	for (const wait of [0, 5_000, Infinity]) {
		const { fetch, asked } = transport(renaming);
		await assert.rejects(new Client("http://service", { fetch }).lock("./data", { wait }), (raised) => raised instanceof Unavailable && /answers for lock "data"/.test(raised.message));
		assert.deepEqual(asked.map((request) => request.split(" ")[0]), ["acquire", "release"]);
	}
});

test("the file to copy reports and undoes an answer for another name", { timeout: bound }, () =>
	copied(renaming, async ({ asked }) => {
		await assert.rejects(acquire("http://service", "./data"), (raised) => raised instanceof CopiedUnavailable && /answers for lock "data"/.test(raised.message));
		assert.deepEqual(asked.map((request) => request.split(" ")[0]), ["acquire", "release"]);
	}));

test("the file to copy holds nothing after its release", () =>
	copied(undefined, async () => {
		const lease = await acquire("http://service", "k");
		assert.ok(lease.held && lease.remaining > 0);
		await lease.release();
		assert.ok(!lease.held && lease.remaining === 0 && !lease.signal.aborted);
	}));

test("the file to copy says why the service cannot be used", { timeout: bound }, () =>
	copied(() => Promise.reject(failed("self-signed certificate", "DEPTH_ZERO_SELF_SIGNED_CERT")), async () => {
		await assert.rejects(acquire("https://service", "k"), (raised) => {
			return raised instanceof CopiedUnavailable && /https:\/\/service .*self-signed certificate/.test(raised.message);
		});
	}));
