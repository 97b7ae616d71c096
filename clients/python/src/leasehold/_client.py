from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import socket
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from ._errors import Held, LeaseholdError, Lost, Refused, Unavailable

# What the type of every problem of the service begins with. An answer without it is a
# proxy's, and tells nothing of what the service has done.
_PROBLEMS = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#"

# For how long one answer is held back by the service while the lock is waited for.
_POLL = 30.0

# How long one request may take beyond that.
_TIMEOUT = 10.0

# How long somebody whose wait is over waits to hear who holds the lock.
_LOOK = 1.0

# A clock that goes on while the machine is suspended, as leases do. On macOS it is the
# second one, which time.monotonic does not take there.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))


def _now() -> float:
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class Client:
    """A Leasehold service. It has no state, and may be shared by threads.

    url is that of the service; bearer is a token of its authentication file. A lock waits
    for at most max_outage seconds for a service that does not answer, and not at all for one
    whose certificate is not valid.
    """

    def __init__(
        self,
        url: str,
        *,
        bearer: str | None = None,
        owner: str | None = None,
        max_outage: float = 30.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.url = _service(url)
        if bearer is not None and not re.fullmatch(r"[\x20-\x7e]*", bearer):
            raise ValueError("the bearer token has a character that no HTTP header can have")  # and is not shown
        self.bearer = bearer
        self._owner = owner
        self.max_outage = max_outage
        handlers: list[Any] = [_NoRedirects()]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

    def __repr__(self) -> str:
        return f"<leasehold.Client of {self.url}>"

    @property
    def owner(self) -> str:
        """The name of the holder that others see: by default the host and the process,
        which after a fork is another one."""
        return self._owner or f"{socket.gethostname()}:{os.getpid()}"

    def lock(
        self,
        name: str,
        *,
        wait: float | None = None,
        ttl: float = 30.0,
        shared: bool = False,
        limit: int = 0,
        permits: int = 1,
        reentrant: bool = False,
        labels: Mapping[str, str] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> Lock:
        """A lock, to be taken by a with statement or by acquire(), again and again.

        wait is how many seconds to wait for it, without end if it is None, and not at all
        if it is 0; then Held is raised. ttl is how long a crashed holder blocks the others;
        the lease is renewed while the with statement runs. shared makes a reader of the
        holder, and limit one of so many places, of which it takes permits. With reentrant
        the owner of the client enters again where it is inside already. on_lost is called
        in another thread as soon as the lease is known to be over.
        """
        if permits != 1 and not limit:
            raise ValueError(f"lock {name!r}: permits counts places of limit, which is missing")
        if ttl <= 0 or wait is not None and wait < 0:
            raise ValueError(f"lock {name!r}: ttl must be positive, and wait must not be negative")
        terms: dict[str, Any] = {"ttlMs": int(ttl * 1000)}
        if shared or limit:
            terms["mode"] = "shared"
        if limit:
            terms["limit"], terms["permits"] = limit, permits
        if reentrant:
            terms["reentrant"] = True
        if labels:
            terms["labels"] = dict(labels)
        return Lock(self, name, ttl, wait, terms, on_lost)

    def try_lock(
        self,
        name: str,
        *,
        ttl: float = 30.0,
        shared: bool = False,
        limit: int = 0,
        permits: int = 1,
        reentrant: bool = False,
        labels: Mapping[str, str] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> Lease:
        """Takes the lock at once, or raises Held. The lease has to be released: by a with
        statement, or by release()."""
        return self.lock(
            name,
            wait=0,
            ttl=ttl,
            shared=shared,
            limit=limit,
            permits=permits,
            reentrant=reentrant,
            labels=labels,
            on_lost=on_lost,
        ).acquire()

    def inspect(self, name: str) -> dict[str, Any]:
        """Who holds the lock and who waits for it, as the service tells."""
        status, answer = self._ask("GET", _look_at(name), None, _TIMEOUT, name)
        if status != 200:
            raise self._failure(name, status, answer)
        return answer

    def _failure(self, name: str, status: int, answer: dict[str, Any]) -> Exception:
        """The error of a request without success, with its cause."""
        if status and not _transient(status):
            return Refused(name, status, answer)
        detail = answer.get("detail") or answer.get("title") or f"status {status}"
        error = Unavailable(f"lock {name!r}: {detail if status == 0 else f'{self.url}: {detail}'}")
        error.__cause__ = answer.get("cause") if status == 0 else None
        return error

    def _ask(
        self, method: str, path: str, body: Any, timeout: float, name: str, lease: str = ""
    ) -> tuple[int, dict[str, Any]]:
        """Status and answer; status 0 if there was none of the service, and then the detail
        says why, cause is the exception, and final tells that time does not heal it. A
        success about a lease has to name it, and no answer names another lock."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Content-Type", "application/json")
        if self.bearer:
            request.add_header("Authorization", "Bearer " + self.bearer)
        data = None if body is None else json.dumps(body).encode()
        began, timeout = _now(), max(timeout, 0.05)
        try:
            status, text = self._exchange(request, data, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None)  # of an URLError
            cause = reason if isinstance(reason, Exception) else error
            if _from_a_signal(cause, _now() - began < 0.9 * timeout):
                raise cause
            final = _is_final(cause)
            why = str(cause) or type(cause).__name__
            detail = f"{self.url} {'cannot be used' if final else 'does not answer'}: {why}"
            return 0, {"detail": detail, "cause": cause, "final": final}
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if isinstance(answer, dict):
            told = answer.get("leaseId", "") == lease if status < 300 else str(answer.get("type")).startswith(_PROBLEMS)
            if told:
                other = answer.get("key", name)
                if other == name:
                    return status, answer
                detail = f"{self.url} cannot be used for this name: it answers for lock {other!r}, so a proxy changes the request"
                return 0, {"detail": detail, "final": True, "elsewhere": True}
        if status == 400 and any(refusal in text for refusal in _WANTS_TLS):
            return 0, {"detail": f"{self.url} cannot be used: the service speaks TLS there; its URL begins with https://", "final": True}
        hint = "; its URL ends with the path of a proxy, if it is behind one" if status == 404 else ""
        return 0, {"detail": f"{self.url} does not answer: what answers there, with status {status}, is not that of a leasehold service{hint}"}

    def _exchange(self, request: urllib.request.Request, data: bytes | None, timeout: float) -> tuple[int, bytes]:
        """Status and text of the answer, which may be that of a proxy."""
        try:
            response = self._opener.open(request, data, timeout)
        except urllib.error.HTTPError as problem:
            response = problem
        with response:
            return response.status, response.read()


# The name of a lock is in the body or the query: a proxy may change a path.
_ACQUIRE, _RENEW, _RELEASE = "/v1/locks", "/v1/leases", "/v1/leases:release"


def _look_at(name: str, **more: str) -> str:
    return "/v1/locks:inspect?" + urllib.parse.urlencode({"name": name, **more})


# What servers answer that were not spoken to in TLS.
_WANTS_TLS = (b"HTTP request to an HTTPS server", b"plain HTTP request was sent to HTTPS port", b"plain HTTP to an SSL-enabled server")


def _is_final(error: Exception) -> bool:
    """Reports whether a request fails however often it is sent: one side of the connection
    is not encrypted, or refuses the certificate of the other one."""
    if isinstance(error, ssl.SSLError):
        return any(word in str(error).upper() for word in ("CERTIFICATE", "UNKNOWN_CA", "WRONG_VERSION_NUMBER"))
    if isinstance(error, http.client.BadStatusLine):
        return "\x15\x03" in str(error.line) or "\\x15\\x03" in str(error.line)  # an alert of TLS
    return isinstance(error, (http.client.InvalidURL, UnicodeError))


def _from_a_signal(error: BaseException, early: bool) -> bool:
    """Reports whether a signal handler of the program raised the error, such as an alarm that
    bounds a call. early tells that the time limit of the request was not over: then a
    time-out that no system call reports is not that of the socket."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if early and isinstance(error, TimeoutError) and error.errno is None:
        return True
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(h, "__code__", None) or getattr(getattr(h, "__call__", None), "__code__", None) for h in handlers}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False


def _service(url: str) -> str:
    """The URL of a service, without a slash at its end."""
    if not isinstance(url, str):
        shown = None if url is None else type(url).__name__  # it may contain a token
        raise TypeError(f"a client needs the URL of a service, such as http://127.0.0.1:8080, and not {shown}")
    parts = urllib.parse.urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a token does not belong into the URL: give bearer=")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        shown = url.partition("?")[0]  # behind it may be a token
        raise ValueError(f"{shown!r} is not the URL of a service, such as http://127.0.0.1:8080")
    return url.rstrip("/")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A lock that is asked for elsewhere is another lock."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _end_of_lease(answer: dict[str, Any], why: str) -> str:
    """How a lease has ended that the service does not have, and why if it does not say."""
    if answer.get("broken"):
        reason = answer.get("reason")
        return f"the lease was broken: {reason}" if reason else "the lease was broken"
    return f"the lease was lost: {why}"


def _pause(ttl: float, confirmed: bool) -> float:
    """How long a lease is left alone after a renewal."""
    return ttl / 3 if confirmed else ttl / 12


def _transient(status: int) -> bool:
    return status == 429 or status >= 500 and status != 501


class _Entered(threading.local):
    """The leases of the with statements that a thread is in."""

    def __init__(self) -> None:
        self.leases: list[Lease] = []


class Lock:
    """A lock with its options. Each with statement and each acquire() takes a lease of its
    own. Threads may share it: they exclude each other."""

    def __init__(
        self,
        client: Client,
        name: str,
        ttl: float,
        wait: float | None,
        terms: dict[str, Any],
        on_lost: Callable[[], None] | None,
    ) -> None:
        self.name = name
        self._client = client
        self._ttl = ttl
        self._wait = wait
        self._terms = terms
        self._on_lost = on_lost
        self._entered = _Entered()

    def __repr__(self) -> str:
        return f"<leasehold.Lock {self.name!r} of {self._client.url}>"

    def _lease(self, on_lost: Callable[[], None] | None) -> Lease:
        """A lease that is not taken yet, of this process: after a fork its owner is another one."""
        terms = {**self._terms, "owner": self._client.owner}
        return Lease(self, terms, on_lost)

    def acquire(self) -> Lease:
        """Takes the lock and returns the lease, which has to be released: by a with statement,
        or by release(). Raises Held, Refused or Unavailable."""
        return self._lease(self._on_lost)._acquire()

    def __enter__(self) -> Lease:
        lease = self.acquire()
        try:
            lease.__enter__()
        except Lost:
            lease.release()
            raise
        self._entered.leases.append(lease)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered.leases.pop().__exit__(kind, error, trace)


class Lease:
    """A lock that was taken. It is released once."""

    def __init__(self, lock: Lock, terms: dict[str, Any], on_lost: Callable[[], None] | None) -> None:
        self.name = lock.name
        #: The lease id, which makes every request repeatable.
        self.id = uuid.uuid4().hex
        #: The fencing token: greater than every one given before for this lock.
        self.token = 0
        #: The numbers of the places of limit, from 0 on, which nobody else has.
        self.places: list[int] = []
        #: Whether a waiter was queued at the last renewal, every third of ttl.
        self.wanted = False
        self._client = lock._client
        self._ttl = lock._ttl
        self._wait = lock._wait
        self._terms = terms
        self._on_lost = on_lost
        self._pid = os.getpid()
        self._deadline = 0.0
        self._lost: str | None = None
        self._keeper = threading.Thread(target=self._keep, name=f"lease of {self.name}", daemon=True)
        self._watcher = threading.Thread(target=self._watch, name=f"end of {self.name}", daemon=True)  # calls on_lost
        self._entered = False  # by a with statement
        self._lock = threading.Lock()  # guards _lost, and the setting of _over by release
        self._over = threading.Event()
        self._ended = threading.Event()  # lost, or released
        self._abandoned = threading.Event()

    def __repr__(self) -> str:
        state = f"held for another {self.remaining():.1f} s" if self.held() else self._end_reason()
        return f"<leasehold.Lease {self.name!r}, token {self.token}: {state}>"

    def _foreign(self) -> bool:
        """Reports whether this process was forked from the one of the lease. The lease is
        not its own: it renews nothing, and releases nothing."""
        return os.getpid() != self._pid

    # Taking it.

    def _acquire(self) -> Lease:
        """Takes the lock. Raises Held, Refused or Unavailable."""
        try:
            self._begin()
        except LeaseholdError:
            raise
        except BaseException:  # of a signal, for instance: the request may be granted by now
            self._over.set()
            self._ended.set()
            self._leave()
            raise
        return self

    def _begin(self) -> None:
        asked = _now()
        self._take(asked)
        if _now() - asked > self._ttl / 3:
            for _ in range(3):  # the lease began at some time during the wait
                if self._renew() or self._lost is not None:
                    break
        else:
            self._deadline = self._end(asked)
        if _now() >= self._deadline:
            self._over.set()
            self._give_back()
            raise Unavailable(f"lock {self.name!r}: the service answered later than the lease lasts")
        self._keeper.start()
        if self._on_lost is not None:
            self._watcher.start()

    def _take(self, began: float) -> None:
        end = None if self._wait is None else began + self._wait
        silent: float | None = None  # since when nothing was answered
        doubt = False  # a request may still be on its way
        pause = 0.05
        answer: dict[str, Any] = {}
        outage = max(self._client.max_outage, 1.0)  # a request that is not answered is not to take longer
        while True:
            left = min(_POLL, outage) if end is None else min(max(end - _now(), 0.0), _POLL, outage)
            body = self._about(self._terms)
            if self._wait != 0:
                body["waitMs"] = max(int(left * 1000), 1)
            sent = _now()
            status, answer = self._ask("POST", _ACQUIRE, body, left + min(_TIMEOUT, outage))
            if self._abandoned.is_set():
                self._give_back()
                raise Held(self.name, answer)
            if status in (200, 201):
                self.token, self.places = answer.get("token", 0), answer.get("places", [])
                return
            if status == 0 and answer.get("final"):
                if doubt or answer.get("elsewhere"):  # the proxy changes the release as well
                    self._give_back(5.0)
                raise self._client._failure(self.name, status, answer)
            doubt = doubt or status == 0 or _transient(status) or answer.get("repeated", False)
            if status == 202 or answer.get("type") == _PROBLEMS + "held":
                if end is not None and _now() >= end:
                    if self._wait != 0 or doubt:
                        self._give_back()  # the place in the queue, and what comes late
                    raise Held(self.name, answer if self._wait == 0 else self._seen(answer))
                silent, pause = None, 0.05
                if status != 202:
                    time.sleep(min(answer.get("retryAfterMs", 100) / 1000, 1.0))
                continue
            if status and not _transient(status):
                self._give_back()
                raise Refused(self.name, status, answer)
            silent = sent if silent is None else silent
            now = _now()
            if now - silent >= self._client.max_outage or end is not None and now >= end and self._wait != 0:
                self._give_back(5.0)
                raise self._client._failure(self.name, status, answer)
            if self._wait == 0 and now - silent >= min(self._client.max_outage, _TIMEOUT):
                self._give_back(5.0)
                raise self._client._failure(self.name, status, answer)
            self._abandoned.wait(answer.get("retryAfterMs", 0) / 1000 or pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 1.0)

    def _seen(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer to a wait, which does not tell who holds the lock, with what one more
        look does tell."""
        status, look = self._client._ask("GET", _look_at(self.name, waiters="false"), None, _LOOK, self.name)
        return dict(answer, holders=look.get("holders")) if status == 200 else answer

    def _abandon(self) -> None:
        """Leaves the queue for acquire, which another thread is in, and has it give back
        what it gets all the same."""
        self._abandoned.set()
        self._leave()

    def _leave(self) -> None:
        if self._foreign():
            return
        self._ask("POST", _RELEASE, self._about(), 5.0)

    def _about(self, terms: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The body of a request about the lease."""
        return {**(terms or {}), "key": self.name, "leaseId": self.id}

    def _ask(self, method: str, path: str, body: dict[str, Any], timeout: float) -> tuple[int, dict[str, Any]]:
        return self._client._ask(method, path, body, timeout, self.name, self.id)

    # Holding it.

    def held(self) -> bool:
        """Compares the clock: true only while nobody else can have the lock. False once its
        release has begun, and in a process that was forked meanwhile."""
        return not self._foreign() and not self._over.is_set() and self._in_time()

    def check(self) -> None:
        """Raises Lost unless the lock is held, for use between the steps of the work."""
        if not self.held():
            raise self._loss()

    def _loss(self) -> Lost:
        return Lost(f"lock {self.name!r}: {self._end_reason()}")

    def _end_reason(self) -> str:
        if self._foreign():
            return f"the lease is that of process {self._pid}, from which this one was forked"
        return self._lost or "it was released"

    def remaining(self) -> float:
        """Seconds until the lease is over unless it is renewed; 0 if it is."""
        return max(self._deadline - _now(), 0.0) if self.held() else 0.0

    def _end(self, sent: float) -> float:
        # Counted from before the request was sent: the store's clock may have started at
        # any moment since. Clocks differ by 1 % at most.
        return sent + self._ttl * 0.99 - 0.002

    def _in_time(self) -> bool:
        if _now() >= self._deadline:
            self._lose("the lease was lost: it was not renewed in time")
        return self._lost is None

    def _lose(self, why: str) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = why
        self._ended.set()

    def _renew(self) -> bool:
        sent = _now()
        status, answer = self._ask("PUT", _RENEW, self._about({"ttlMs": self._terms["ttlMs"]}), self._ttl / 6)
        if status == 200:
            self.wanted = answer.get("wanted", False)
            self._deadline = self._end(sent)
        elif status == 410:
            self._lose(_end_of_lease(answer, answer.get("detail") or "the service no longer has it"))
        return status == 200

    def _keep(self) -> None:
        pause = _pause(self._ttl, True)
        while not self._over.wait(min(pause, max(self._deadline - _now(), 0.001))):
            if not self._in_time():
                return
            try:
                confirmed = self._renew()
            except Exception:  # whatever it was, the next try may succeed
                confirmed = False
            pause = _pause(self._ttl, confirmed)

    def _watch(self) -> None:
        """Calls on_lost at the end of the lease, also while a renewal hangs."""
        while not self._ended.wait(max(self._deadline - _now(), 0.001)):
            if self._over.is_set():  # release says how it ended
                self._ended.wait()
            else:
                self._in_time()
        if self._lost is not None and self._on_lost is not None:
            self._on_lost()

    # Giving it back.

    def release(self) -> None:
        """Gives the lock back. Raises Lost if the lease had ended before, and Unavailable
        if the service does not confirm; then it ends with its TTL at the latest. Calling it
        again does nothing, nor does calling it in a process that was forked meanwhile."""
        if self._over.is_set() or self._foreign():
            return
        held = self._in_time()
        with self._lock:
            if self._over.is_set():  # by on_lost
                return
            self._over.set()
        try:
            self._keeper.join(self._ttl / 6)  # a renewal that comes later finds nothing
            status, answer = self._give_back()
        except BaseException:  # of a signal, for instance
            self._leave()
            raise
        finally:
            self._ended.set()
        if status == 410 and held and (answer.get("broken") or _now() < self._deadline):
            self._lose(_end_of_lease(answer, "it was gone at its release"))
        if self._lost is not None:
            raise self._loss()
        if status == 0:
            raise Unavailable(f"lock {self.name!r}: the release was not confirmed")

    def _give_back(self, within: float = 15.0) -> tuple[int, dict[str, Any]]:
        """Status of the first answer, and the answer; 0 if there was none within the time."""
        if self._foreign():
            return 0, {}
        repeated, end = False, _now() + within
        for attempt in range(3):
            timeout = min(5.0, end - _now())
            status, answer = self._ask("POST", _RELEASE, self._about(), timeout)
            if status == 200:
                return status, answer
            if status == 410:
                # A try that was not answered may have released it. It has not broken it.
                return 200 if repeated and not answer.get("broken") else 410, answer
            repeated = True
            if _now() >= end or answer.get("elsewhere"):
                break
            time.sleep(0.05 * (attempt + 1))
        return 0, {}

    def __enter__(self) -> Lease:
        self.check()
        if self._entered:  # the inner statement would release it
            raise RuntimeError(f"lock {self.name!r}: a lease is entered once; its Lock may be used again")
        self._entered = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._foreign():
            return
        try:
            self.release()
        except (Lost, Unavailable):
            if kind is None:
                raise
        if kind is None and self._lost is not None:  # and it was released before
            raise self._loss()
