#!/usr/bin/env python3
"""A lock of `leasehold serve`, with Python's standard library alone.

    with Lock("http://127.0.0.1:8080", "orders/42") as lease:
        charge(lease.token)  # and look at lease.held() between steps

As a program it runs a command while it holds the lock:

    LEASEHOLD_URL=http://127.0.0.1:8080 python3 lock.py NAME COMMAND [ARG...]

The command sees its fencing token as LEASEHOLD_TOKEN. The exit code is its
own, or 79 if the lock was lost: the command was killed before that. Signals
are passed on to it. Where a bearer token is needed, LEASEHOLD_AUTH has it.
"""

import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

# What the type of every problem of the service begins with.
PROBLEMS = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#"

# A clock that goes on while the machine is suspended, as leases do. On macOS it is the
# second one, which time.monotonic does not take there.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def now():
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class Refused(Exception):
    """The service answered with a problem that asking again does not change."""


class Unavailable(Exception):
    """The service did not answer for OUTAGE seconds, or cannot be used. The message says why."""


class Lost(Exception):
    """The lease ended before it was released."""


# How many seconds a lock waits for a service that does not answer.
OUTAGE = 30


class Lock:
    """One acquisition of a lock. Use it once, in a with statement."""

    def __init__(self, base, name, ttl=30.0, owner=None, bearer=None):
        self.base, self.name = base, name
        # The lease id makes every request repeatable: one that was not
        # answered is sent again, and has the effect of one.
        self.id = uuid.uuid4().hex
        self.ttl = ttl
        self.owner = owner or "%s:%d" % (socket.gethostname(), os.getpid())
        self.bearer = bearer
        self.token = 0
        self.pid = os.getpid()  # a forked process neither holds the lease nor releases it
        self.lost = threading.Event()
        self._deadline = 0.0
        self._taken = False
        self._over = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        if os.getpid() != self.pid:  # described before a fork: others may use that lease id
            self.pid, self.id = os.getpid(), uuid.uuid4().hex
        try:
            return self._enter()
        except BaseException:  # of a signal, for instance: the request may be granted by now
            self._over.set()
            self._give_back()
            raise

    def _enter(self):
        asked = now()
        self._take()
        if now() - asked > self.ttl / 3:
            for _ in range(3):  # the lease began at some time during the wait
                if self._renew() or self.lost.is_set():
                    break
        else:
            self._deadline = self._end(asked)
        self._taken = True
        if not self.held():
            raise Lost(self.name)
        self._keeper.start()
        self._watcher.start()
        return self

    def __exit__(self, *exc):
        if os.getpid() != self.pid:
            return
        self._over.set()
        self._keeper.join(self.ttl / 6)  # a renewal that comes later finds nothing
        self._give_back()
        if self.lost.is_set() and exc[0] is None:
            raise Lost(self.name)

    def _give_back(self):
        for _ in range(3):
            status, _ = self._ask("POST", "/leases:release", {}, 5)
            if status == 200:
                break
            if status == 410:
                self.lost.set()
                break

    def held(self):
        """Compares the clock: true only while nobody else can have the lock. False before
        and after the with statement, and in a process that was forked within it."""
        if os.getpid() != self.pid or not self._taken or self._over.is_set():
            return False
        if now() >= self._deadline:
            self.lost.set()
        return not self.lost.is_set()

    def remaining(self):
        """Seconds until the lease is over unless it is renewed."""
        return max(self._deadline - now(), 0.0) if self.held() else 0.0

    def _end(self, sent):
        # Counted from before the request was sent: the service's clock may
        # have started at any moment since. Clocks differ by 1 % at most.
        return sent + self.ttl * 0.99 - 0.002

    def _take(self):
        body = {"ttlMs": int(self.ttl * 1000), "waitMs": 30000, "owner": self.owner}
        heard = now()
        while True:
            status, answer = self._ask("POST", "/locks", body, 40)
            if answer.get("final") or status == 0 and now() - heard > OUTAGE:
                raise Unavailable(answer["detail"])
            if status:
                heard = now()
            if status in (200, 201):
                self.token = answer["token"]
                return
            if status == 202:
                continue  # still queued: ask again, and keep the place
            if status == 410:
                raise Lost(self.name)  # broken before the answer
            if 0 < status < 500 and status != 429 or status == 501:
                raise Refused(answer.get("detail", status))
            time.sleep(answer.get("retryAfterMs", 1000) / 1000)

    def _renew(self):
        sent = now()
        status, answer = self._ask("PUT", "/leases", {"ttlMs": int(self.ttl * 1000)}, self.ttl / 6)
        if status == 200:
            self._deadline = self._end(sent)
        elif status == 410:
            self.lost.set()
        return status == 200

    def _keep(self):
        pause = self.ttl / 3
        while not self._over.wait(min(pause, max(self.remaining(), 0.001))):
            if not self.held():
                return
            try:
                renewed = self._renew()
            except Exception:  # whatever it was, the next try may succeed
                renewed = False
            pause = self.ttl / 3 if renewed else self.ttl / 12

    def _watch(self):
        """Sets lost at the end of the lease, also while a renewal hangs."""
        while not self._over.wait(max(self._deadline - now(), 0.001)):
            if not self.held():
                return

    def _ask(self, method, path, body, timeout):
        """Returns status and answer; status 0 if there was none of the service, and then the
        detail says why, and final that time does not heal it."""
        request = urllib.request.Request(self.base + "/v1" + path, method=method)
        request.add_header("Content-Type", "application/json")
        if self.bearer:
            request.add_header("Authorization", "Bearer " + self.bearer)
        # The name is in the body: a proxy may change a path.
        data = json.dumps(dict(body, key=self.name, leaseId=self.id)).encode()
        began = now()
        try:
            try:
                response = urllib.request.urlopen(request, data, timeout)
            except urllib.error.HTTPError as problem:
                response = problem
            with response:
                status, text = response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "reason", "") or error
            if isinstance(cause, TimeoutError) and cause.errno is None and now() - began < 0.9 * timeout:
                raise cause  # an alarm of the program
            final = str(cause).startswith("unknown url type") or isinstance(cause, ssl.SSLError) and any(w in str(cause).upper() for w in ("CERTIFICATE", "WRONG_VERSION"))
            return 0, {"detail": "%s does not answer: %s" % (self.base, cause or type(error).__name__), "final": final}
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            ours = answer.get("leaseId") == self.id if status < 300 else str(answer.get("type")).startswith(PROBLEMS)
            if ours and answer.get("key", self.name) == self.name:
                return status, answer
            if ours:  # the proxy changes the release as well, which undoes it
                return 0, {"detail": "%s answers for lock %r: a proxy changes the request" % (self.base, answer["key"]), "final": True}
        return 0, {"detail": "%s does not answer: status %d there is not of a leasehold service" % (self.base, status)}


def run(lock, command):
    """Runs a command under a lock, and kills it before the lease can end. The lock is not
    given back before the command has ended, whatever signals come."""
    with lock:
        came = []
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: came.append(number))
        env = dict(os.environ, LEASEHOLD_TOKEN=str(lock.token))
        child = subprocess.Popen(command, env=env, start_new_session=True)
        margin = lock.ttl / 20
        while lock.remaining() > margin:
            try:
                return child.wait(max(min(lock.remaining() - margin, 0.25), 0.001))
            except subprocess.TimeoutExpired:
                while came:
                    os.killpg(child.pid, came.pop(0))  # not waited for, it is still there
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        lock.lost.set()
    raise Lost(lock.name)


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: lock.py NAME COMMAND [ARG...]")
    base = os.environ.get("LEASEHOLD_URL", "http://127.0.0.1:8080")
    lock = Lock(base, sys.argv[1], bearer=os.environ.get("LEASEHOLD_AUTH"))
    try:
        code = run(lock, sys.argv[2:])
    except Lost:
        print("lost the lock; the command was killed", file=sys.stderr)
        code = 79
    except (Refused, Unavailable) as problem:
        print(problem, file=sys.stderr)
        code = 69
    sys.exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
