from __future__ import annotations

import json
import os
import random
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

from ._errors import Held, Lost, Refused, Unavailable

# What the type of every problem of the service begins with. An answer without it is a
# proxy's, and tells nothing of what the service has done.
_PROBLEMS = "https://github.com/leasehold-go/leasehold/blob/main/docs/http.md#"

# For how long one answer is held back by the service while the lock is waited for.
_POLL = 30.0

# How long one request may take beyond that.
_TIMEOUT = 10.0

if hasattr(time, "CLOCK_BOOTTIME"):  # goes on while the machine is suspended, as leases do

    def _now() -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    _now = time.monotonic


class Client:
    """A Leasehold service. It has no state, and may be shared by threads.

    url is that of the service; bearer is a token of its authentication file. A lock waits
    for at most max_outage seconds for a service that does not answer.
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
        self.url = url.rstrip("/")
        self.bearer = bearer
        self.owner = owner or f"{socket.gethostname()}:{os.getpid()}"
        self.max_outage = max_outage
        handlers: list[Any] = [_NoRedirects()]
        if context is not None:
            handlers.append(urllib.request.HTTPSHandler(context=context))
        self._opener = urllib.request.build_opener(*handlers)

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
    ) -> Lease:
        """A lock, to be taken by a with statement or by acquire().

        wait is how many seconds to wait for it, without end if it is None, and not at all
        if it is 0; then Held is raised. ttl is how long a crashed holder blocks the others;
        the lease is renewed while the with statement runs. shared makes a reader of the
        holder, and limit one of so many places, of which it takes permits. With reentrant
        the owner of the client enters again where it is inside already. on_lost is called
        in another thread as soon as the lease is known to be over.
        """
        if ttl <= 0 or wait is not None and wait < 0:
            raise ValueError("ttl must be positive, and wait must not be negative")
        terms: dict[str, Any] = {"ttlMs": int(ttl * 1000), "owner": self.owner}
        if shared or limit:
            terms["mode"] = "shared"
        if limit:
            terms["limit"], terms["permits"] = limit, permits
        if reentrant:
            terms["reentrant"] = True
        if labels:
            terms["labels"] = dict(labels)
        return Lease(self, name, ttl, wait, terms, on_lost)

    def try_lock(self, name: str, **options: Any) -> Lease:
        """Takes the lock at once, or raises Held. The lease has to be released."""
        return self.lock(name, wait=0, **options).acquire()

    def inspect(self, name: str) -> dict[str, Any]:
        """Who holds the lock and who waits for it, as the service tells."""
        status, answer = self._ask("GET", self._path(name), None, _TIMEOUT)
        if status != 200:
            raise _failure(name, status, answer)
        return answer

    @staticmethod
    def _path(name: str) -> str:
        return "/v1/locks/" + urllib.parse.quote(name, safe="")

    def _ask(self, method: str, path: str, body: Any, timeout: float, lease: str = "") -> tuple[int, dict[str, Any]]:
        """Status and answer; status 0 if there was none of the service. A success about a
        lease has to name it."""
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Content-Type", "application/json")
        if self.bearer:
            request.add_header("Authorization", "Bearer " + self.bearer)
        data = None if body is None else json.dumps(body).encode()
        try:
            with self._opener.open(request, data, max(timeout, 0.05)) as response:
                if response.status == 204:
                    return 204, {}
                answer = json.load(response)
                if isinstance(answer, dict) and answer.get("leaseId", "") == lease:
                    return response.status, answer
        except urllib.error.HTTPError as problem:
            with problem:
                try:
                    answer = json.load(problem)
                    if answer["type"].startswith(_PROBLEMS):
                        return problem.code, answer
                except (OSError, ValueError, KeyError, TypeError, AttributeError):
                    pass
        except (OSError, ValueError):
            pass
        return 0, {}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A lock that is asked for elsewhere is another lock."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _failure(name: str, status: int, answer: dict[str, Any]) -> Exception:
    if status == 0 or _transient(status):
        return Unavailable(f"lock {name!r}: {answer.get('detail', 'the service does not answer')}")
    return Refused(name, status, answer)


def _transient(status: int) -> bool:
    return status == 429 or status >= 500 and status != 501


class Lease:
    """A lock of one holder. It is taken once, and given back once."""

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
        #: The lease id, which makes every request repeatable.
        self.id = uuid.uuid4().hex
        #: The fencing token: greater than every one given before for this lock.
        self.token = 0
        self._client = client
        self._ttl = ttl
        self._wait = wait
        self._terms = terms
        self._on_lost = on_lost
        self._url = client._path(name)
        self._deadline = 0.0
        self._lost: str | None = None
        self._lock = threading.Lock()  # guards _lost
        self._over = threading.Event()
        self._abandoned = threading.Event()
        self._keeper: threading.Thread | None = None

    # Taking it.

    def acquire(self) -> Lease:
        """Takes the lock, as the with statement does, and returns the lease. Raises Held,
        Refused or Unavailable."""
        if self._keeper is not None:
            raise RuntimeError("a lease is taken once")
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
        self._keeper = threading.Thread(target=self._keep, name=f"lease of {self.name}", daemon=True)
        self._keeper.start()
        return self

    def _take(self, began: float) -> None:
        end = None if self._wait is None else began + self._wait
        silent: float | None = None  # since when nothing was answered
        pause = 0.05
        answer: dict[str, Any] = {}
        while True:
            left = _POLL if end is None else min(max(end - _now(), 0.0), _POLL)
            body = dict(self._terms, leaseId=self.id)
            if self._wait != 0:
                body["waitMs"] = max(int(left * 1000), 1)
            sent = _now()
            status, answer = self._client._ask("POST", self._url, body, left + _TIMEOUT, self.id)
            if self._abandoned.is_set():
                self._give_back()
                raise Held(self.name, answer)
            if status in (200, 201):
                self.token = answer["token"]
                return
            if status == 202 or answer.get("type") == _PROBLEMS + "held":
                if end is not None and _now() >= end:
                    if self._wait != 0:
                        self._give_back()  # the place in the queue
                    raise Held(self.name, answer)
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
                self._give_back()
                raise _failure(self.name, status, answer)
            if self._wait == 0 and now - silent >= min(self._client.max_outage, _TIMEOUT):
                self._give_back()
                raise _failure(self.name, status, answer)
            self._abandoned.wait(answer.get("retryAfterMs", 0) / 1000 or pause * random.uniform(0.5, 1.0))
            pause = min(pause * 2, 1.0)

    def _abandon(self) -> None:
        """Leaves the queue for acquire, which another thread is in, and has it give back
        what it gets all the same."""
        self._abandoned.set()
        self._client._ask("DELETE", f"{self._url}/leases/{self.id}", None, 5.0, self.id)

    # Holding it.

    def held(self) -> bool:
        """Compares the clock: true only while nobody else can have the lock."""
        if not self._over.is_set() and _now() >= self._deadline:
            self._lose("it was not renewed in time")
        return self._lost is None

    def check(self) -> None:
        """Raises Lost unless the lock is held: for use between the steps of the work."""
        if not self.held():
            raise Lost(f"lock {self.name!r}: {self._lost}")

    def remaining(self) -> float:
        """Seconds until the lease is over unless it is renewed; 0 if it is."""
        return max(self._deadline - _now(), 0.0) if self.held() else 0.0

    def _end(self, sent: float) -> float:
        # Counted from before the request was sent: the store's clock may have started at
        # any moment since. Clocks differ by 1 % at most.
        return sent + self._ttl * 0.99 - 0.002

    def _lose(self, why: str) -> None:
        with self._lock:
            if self._lost is not None:
                return
            self._lost = why
        if self._on_lost is not None:
            self._on_lost()

    def _renew(self) -> bool:
        sent = _now()
        status, answer = self._client._ask(
            "PUT", f"{self._url}/leases/{self.id}", {"ttlMs": self._terms["ttlMs"]}, self._ttl / 6, self.id
        )
        if status == 200:
            self._deadline = self._end(sent)
        elif status == 410:
            self._lose(answer.get("reason") or answer.get("detail") or "the service no longer has it")
        return status == 200

    def _keep(self) -> None:
        pause = self._ttl / 3
        while not self._over.wait(min(pause, max(self._deadline - _now(), 0.001))):
            if not self.held():
                return
            pause = self._ttl / 3 if self._renew() else self._ttl / 12

    # Giving it back.

    def release(self) -> None:
        """Gives the lock back. Raises Lost if the lease had ended before, and Unavailable
        if the service does not confirm; then it ends with its TTL at the latest. Calling it
        again does nothing."""
        if self._over.is_set():
            return
        held = self.held()
        self._over.set()
        if self._keeper is not None:
            self._keeper.join()
        status = self._give_back()
        if status == 410 and held and self.held():
            self._lose("it was gone at its release")
        if self._lost is not None:
            raise Lost(f"lock {self.name!r}: {self._lost}")
        if status == 0:
            raise Unavailable(f"lock {self.name!r}: the release was not confirmed")

    def _give_back(self) -> int:
        """The status of the first answer; 0 if there was none."""
        repeated = False
        for attempt in range(3):
            status, _ = self._client._ask("DELETE", f"{self._url}/leases/{self.id}", None, 5.0, self.id)
            if status in (200, 204):
                return status
            if status == 410:
                return 204 if repeated else 410  # a try that was not answered may have done it
            repeated = True
            time.sleep(0.05 * (attempt + 1))
        return 0

    def __enter__(self) -> Lease:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.release()
        except (Lost, Unavailable):
            if kind is None:
                raise
