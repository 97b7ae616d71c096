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

__all__ = ["Client", "Lease"]


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
        """A lock, to be taken by an async with statement or by acquire(). Its options are
        those of leasehold.Client.lock, but that on_lost is called in the event loop."""
        return Lease(
            self,
            on_lost,
            name,
            wait=wait,
            ttl=ttl,
            shared=shared,
            limit=limit,
            permits=permits,
            reentrant=reentrant,
            labels=labels,
        )

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
        lease = self.lock(
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
        return await lease.acquire()

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


class Lease:
    """A lock of one task."""

    def __init__(self, client: Client, on_lost: Callable[[], None] | None, name: str, **options: Any) -> None:
        self._client = client
        self._on_lost = on_lost
        self._inner = client._client.lock(name, on_lost=self._notice, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._body: asyncio.Task[Any] | None = None
        self._cancelled = False
        #: Set when the lease is over without having been released.
        self.lost = asyncio.Event()

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def token(self) -> int:
        """The fencing token: greater than every one given before for this lock. There is
        none before the lock is taken: RuntimeError."""
        return self._inner.token

    def held(self) -> bool:
        """Compares the clock: true only while nobody else can have the lock."""
        return self._inner.held()

    def check(self) -> None:
        """Raises Lost unless the lock is held, and RuntimeError if it was never taken."""
        self._inner.check()

    def remaining(self) -> float:
        """Seconds until the lease is over unless it is renewed; 0 if it is."""
        return self._inner.remaining()

    async def acquire(self) -> Lease:
        """Takes the lock and returns the lease. If the task is cancelled meanwhile, what
        was asked for is given back."""
        self._loop = asyncio.get_running_loop()
        taken = _begin(self._inner.acquire)
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
        """Gives the lock back. Raises Lost if the lease had ended before, Unavailable if the
        service does not confirm, and RuntimeError if the lock was never taken."""
        await asyncio.shield(asyncio.wrap_future(_begin(self._inner.release)))

    def _notice(self) -> None:
        """Comes from another thread."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over)

    def _over(self) -> None:
        self.lost.set()
        if self._on_lost is not None:
            self._on_lost()
        if self._body is not None:
            self._cancelled = True
            self._body.cancel()

    async def __aenter__(self) -> Lease:
        if self._inner._keeper is None or self._body is not None:
            await self.acquire()
        else:  # it was taken by try_lock, or by acquire
            self.check()
        if self.lost.is_set():  # it was too early to cancel the body
            await self.release()
            raise self._inner._loss()
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
