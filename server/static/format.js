// Numbers and times for people.

const numbers = new Intl.NumberFormat("en-GB");

// count writes a whole number: 10 000.
export const count = (n) => numbers.format(n).replaceAll(",", "\u202f");

// plural writes a number with its word: 1 lock, 2 locks.
export const plural = (n, one, many = one + "s") => `${count(n)} ${n === 1 ? one : many}`;

// span writes milliseconds, in two units at most.
export function span(ms) {
	if (ms < 0) ms = 0;
	const s = Math.floor(ms / 1000);
	if (ms < 1000) return `${Math.round(ms)} ms`;
	if (s < 60) return `${s} s`;
	if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60} s`;
	if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
	return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

// fine writes a short time that was measured in microseconds.
export function fine(us) {
	if (us < 1000) return `${us} µs`;
	if (us < 10000) return `${(us / 1000).toFixed(2)} ms`;
	return us < 1e6 ? `${(us / 1000).toFixed(0)} ms` : `${(us / 1e6).toFixed(1)} s`;
}

const clockForm = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

// clock writes a moment of today.
export const clock = (time) => clockForm.format(new Date(time));

// process takes a holder or waiter apart. The library names an owner "host:pid", and the command
// "host:pid/random" or "name/random", with labels for host, process and command.
export function process(x) {
	const labels = x.labels || {};
	const text = (x.owner || "").replace(labels["leasehold.pid"] ? /\/[A-Z2-7]{8}$/ : /$^/, "");
	const m = /^([A-Za-z0-9._-]+):(\d{1,9})$/.exec(text);
	const host = labels["leasehold.host"] || m?.[1];
	const title = m ? m[1] : text || (x.foreign ? "another program" : "somebody");
	return { title, text: text || title, host: host === title ? "" : host, pid: labels["leasehold.pid"] || m?.[2], command: labels["leasehold.command"] };
}

// numbered writes the places of a semaphore that a holder has: place 3, places 0, 3.
export const numbered = (x) => (x.places?.length ? `${x.places.length === 1 ? "place" : "places"} ${x.places.join(", ")}` : "");

// quote writes a word for a POSIX shell.
export const quote = (word) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'");
