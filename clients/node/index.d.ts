/** What every error of this package is. */
export class LeaseholdError extends Error {}

/** A holder of a lock, as the service tells. */
export interface Holder {
	leaseId: string;
	owner?: string;
	mode?: "exclusive" | "shared";
	[more: string]: unknown;
}

/** Others held the lock for as long as was waited. Nothing was taken. */
export class Held extends LeaseholdError {
	/** Who holds it, as far as the service tells. */
	readonly holders: Holder[];
	/** The place in the queue that was reached; 0 without one. */
	readonly position: number;
}

/** The service refuses in a way that asking again does not change. */
export class Refused extends LeaseholdError {
	readonly status: number;
	/** The problem's type, of which docs/http.md tells. */
	readonly type: string;
}

/** The lease ended before it was released: the work was unprotected from then on. */
export class Lost extends LeaseholdError {}

/** The service did not answer for longer than maxOutage, or cannot be used, for example
 * because its certificate is not valid. The message has its URL and the cause, which is also
 * cause. */
export class Unavailable extends LeaseholdError {}

export interface ClientOptions {
	/** A token of the service's authentication file. */
	bearer?: string;
	/** Who is shown as the holder. Default: host and process. */
	owner?: string;
	/** For how many milliseconds a service that does not answer is waited for. Default 30 000. */
	maxOutage?: number;
	/** In place of the global fetch. */
	fetch?: typeof globalThis.fetch;
}

export interface LockOptions {
	/** Milliseconds to wait for the lock: without end by default; 0 asks once. */
	wait?: number;
	/** Milliseconds for which a crashed holder blocks the others. Default 30 000. */
	ttl?: number;
	/** A reader: any number of them, or one writer. */
	shared?: boolean;
	/** One of so many places; all who use the name state the same limit. */
	limit?: number;
	/** How many of the places. Default 1. */
	permits?: number;
	/** The owner enters again where it is inside already. */
	reentrant?: boolean;
	/** Shown to those who may read. */
	labels?: Record<string, string>;
	/** Ends the wait. */
	signal?: AbortSignal;
}

/** A lock that is held, and renewed until its release. */
export interface Lease {
	readonly name: string;
	readonly id: string;
	/** The fencing token: greater than every one given before for this lock. */
	readonly token: number;
	/** The numbers of the places of limit, from 0 on, which nobody else has. */
	readonly places: number[];
	/** Whether a waiter was queued at the last renewal, every third of ttl. */
	readonly wanted: boolean;
	/** Aborts when the lease is over without having been released; its reason is a Lost. */
	readonly signal: AbortSignal;
	/** Compares the clock: true only while nobody else can have the lock. False once its
	 * release has begun. */
	readonly held: boolean;
	/** Milliseconds until the lease is over unless it is renewed; 0 if it is. */
	readonly remaining: number;
	/** Throws Lost unless the lock is held. */
	check(): void;
	/** Gives the lock back. Rejects with Lost if the lease had ended before, and with
	 * Unavailable if the service does not confirm. Calling it again does nothing. */
	release(): Promise<void>;
	[Symbol.asyncDispose](): Promise<void>;
}

export class Client {
	constructor(url: string, options?: ClientOptions);
	/** Waits for the lock. Rejects with Held, Refused, Unavailable, or the reason of
	 * options.signal. */
	lock(name: string, options?: LockOptions): Promise<Lease>;
	/** Takes the lock at once, or rejects with Held. */
	tryLock(name: string, options?: Omit<LockOptions, "wait">): Promise<Lease>;
	/** Runs work under the lock, with a signal that aborts when the lease is lost, and
	 * releases it. */
	with<T>(name: string, work: (lease: Lease) => T | Promise<T>, options?: LockOptions): Promise<T>;
	/** Who holds the lock and who waits for it, as the service tells. */
	inspect(name: string): Promise<{ key: string; holders: Holder[]; waiters: unknown[]; [more: string]: unknown }>;
}
