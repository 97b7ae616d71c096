"""Leasehold for programs on asyncio.

    from leasehold.aio import Client

    client = Client("http://127.0.0.1:8080")
    async with client.lock("orders/42", wait=10) as lease:
        await charge(order, fence=lease.token)

If the lease is lost, the body of the async with statement is cancelled, and Lost is
raised behind it. Each lock that is waited for occupies a thread of its own, and so does
each release, so that none of them delays another.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any

from . import _client
from ._errors import Lost, Unavailable

__all__ = ["Client", "Lease", "Lock"]


class Client:
    """A Leasehold service, for use in event loops. Its options are those of
    leasehold.Client."""

    def __init__(
        self,
        url: str,
        *,
        bearer: str | None = None,
        owner: str | None = None,
        max_outage: float = 30.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._client = _client.Client(url, bearer=bearer, owner=owner, max_outage=max_outage, context=context)

    def __repr__(self) -> str:
        return f"<leasehold.aio.Client of {self._client.url}>"

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
        """A lock, to be taken by an async with statement or by acquire(), again and again. Its
        options are those of leasehold.Client.lock, but that on_lost is called in the event loop."""
        inner = self._client.lock(
            name,
            wait=wait,
            ttl=ttl,
            shared=shared,
            limit=limit,
            permits=permits,
            reentrant=reentrant,
            labels=labels,
        )
        return Lock(inner, on_lost)

    async def try_lock(
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
        """Takes the lock at once, or raises Held. The lease has to be released: by an async
        with statement, or by release()."""
        lock = self.lock(
            name,
            wait=0,
            ttl=ttl,
            shared=shared,
            limit=limit,
            permits=permits,
            reentrant=reentrant,
            labels=labels,
            on_lost=on_lost,
        )
        return await lock.acquire()

    async def inspect(self, name: str) -> dict[str, Any]:
        """Who holds the lock and who waits for it, as the service tells."""
        return await asyncio.wrap_future(_begin(lambda: self._client.inspect(name)))


def _begin(work: Callable[[], Any]) -> Future[Any]:
    """Runs work in a thread of its own. In a pool of threads, waits would keep releases and
    tries from theirs, and a forked process would have none."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()  # from now on nothing cancels it

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="leasehold").start()
    return future


class Lock:
    """A lock with its options. Each async with statement and each acquire() takes a lease of
    its own. Tasks may share it: they exclude each other."""

    def __init__(self, inner: _client.Lock, on_lost: Callable[[], None] | None) -> None:
        self._inner = inner
        self._on_lost = on_lost
        # The leases of the statements that a task is in.
        self._entered: dict[asyncio.Task[Any] | None, list[Lease]] = {}

    def __repr__(self) -> str:
        return repr(self._inner).replace("leasehold.", "leasehold.aio.", 1)

    @property
    def name(self) -> str:
        return self._inner.name

    async def acquire(self) -> Lease:
        """Takes the lock and returns the lease, which has to be released: by an async with
        statement, or by release(). If the task is cancelled meanwhile, what was asked for is
        given back."""
        return await Lease(self._inner, self._on_lost)._acquire()

    async def __aenter__(self) -> Lease:
        lease = await self.acquire()
        try:
            await lease.__aenter__()
        except Lost:
            await lease.release()
            raise
        self._entered.setdefault(asyncio.current_task(), []).append(lease)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        leases = self._entered[asyncio.current_task()]
        lease = leases.pop()
        if not leases:
            del self._entered[asyncio.current_task()]
        await lease.__aexit__(kind, error, trace)


class Lease:
    """A lock that a task has taken. It is released once."""

    def __init__(self, lock: _client.Lock, on_lost: Callable[[], None] | None) -> None:
        self._on_lost = on_lost
        self._inner = lock._lease(self._notice)
        self._loop = asyncio.get_running_loop()
        self._body: asyncio.Task[Any] | None = None
        self._cancelled = False
        #: Set when the lease is over without having been released.
        self.lost = asyncio.Event()

    def __repr__(self) -> str:
        return repr(self._inner).replace("leasehold.", "leasehold.aio.", 1)

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def token(self) -> int:
        """The fencing token: greater than every one given before for this lock."""
        return self._inner.token

    @property
    def places(self) -> list[int]:
        """The numbers of the places of limit, from 0 on, which nobody else has."""
        return self._inner.places

    @property
    def wanted(self) -> bool:
        """Whether a waiter was queued at the last renewal, every third of ttl."""
        return self._inner.wanted

    def held(self) -> bool:
        """Compares the clock: true only while nobody else can have the lock."""
        return self._inner.held()

    def check(self) -> None:
        """Raises Lost unless the lock is held."""
        self._inner.check()

    def remaining(self) -> float:
        """Seconds until the lease is over unless it is renewed; 0 if it is."""
        return self._inner.remaining()

    async def _acquire(self) -> Lease:
        taken = _begin(self._inner._acquire)
        answer = asyncio.wrap_future(taken)
        try:
            await asyncio.shield(answer)
        except asyncio.CancelledError:
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())  # or it is logged
            _begin(self._inner._abandon)
            taken.add_done_callback(self._return)
            raise
        return self

    def _return(self, taken: Future[Any]) -> None:
        if taken.exception() is None:  # granted before it was abandoned
            _begin(self._inner.release)

    async def release(self) -> None:
        """Gives the lock back. Raises Lost if the lease had ended before, and Unavailable if the
        service does not confirm."""
        await asyncio.shield(asyncio.wrap_future(_begin(self._inner.release)))

    def _notice(self) -> None:
        """Comes from another thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over)

    def _over(self) -> None:
        self.lost.set()
        if self._on_lost is not None:
            self._on_lost()
        if self._body is not None:
            self._cancelled = True
            self._body.cancel()

    async def __aenter__(self) -> Lease:
        self._inner.__enter__()
        self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        ours = self._cancelled and body is not None and body.uncancel() == 0
        end: Exception | None = None
        try:
            await self.release()
        except (Lost, Unavailable) as failure:
            end = failure
        if end is None and self._inner._lost is not None:  # and it was released before
            end = self._inner._loss()
        if end is not None and (kind is None or ours and issubclass(kind, asyncio.CancelledError)):
            raise end from None
