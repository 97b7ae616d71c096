"""Leasehold for programs on asyncio.

    from leasehold.aio import Client

    client = Client("http://127.0.0.1:8080")
    async with client.lock("orders/42", wait=10) as lease:
        await charge(order, fence=lease.token)

If the lease is lost, the body of the async with statement is cancelled, and Lost is
raised behind it. Requests run in threads of the client's own: each lock that is waited
for occupies one, of max_waits.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from . import _client
from ._errors import Lost, Unavailable

__all__ = ["Client", "Lease"]


class Client:
    """A Leasehold service, for use in event loops. Its options are those of
    leasehold.Client."""

    def __init__(self, url: str, *, max_waits: int = 64, **options: Any) -> None:
        self._client = _client.Client(url, **options)
        self._waits = ThreadPoolExecutor(max_waits, thread_name_prefix="leasehold-wait")
        self._calls = ThreadPoolExecutor(8, thread_name_prefix="leasehold")  # releases wait for no waiter

    def lock(self, name: str, **options: Any) -> Lease:
        """A lock, to be taken by an async with statement or by acquire(). Its options are
        those of leasehold.Client.lock."""
        return Lease(self, name, options)

    async def try_lock(self, name: str, **options: Any) -> Lease:
        """Takes the lock at once, or raises Held. The lease has to be released."""
        return await self.lock(name, wait=0, **options).acquire()

    async def inspect(self, name: str) -> dict[str, Any]:
        """Who holds the lock and who waits for it, as the service tells."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._calls, self._client.inspect, name)


class Lease:
    """A lock of one task."""

    def __init__(self, client: Client, name: str, options: dict[str, Any]) -> None:
        self._client = client
        self._on_lost = options.pop("on_lost", None)
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
        """The fencing token: greater than every one given before for this lock."""
        return self._inner.token

    def held(self) -> bool:
        """Compares the clock: true only while nobody else can have the lock."""
        return self._inner.held()

    def check(self) -> None:
        """Raises Lost unless the lock is held."""
        self._inner.check()

    def remaining(self) -> float:
        """Seconds until the lease is over unless it is renewed; 0 if it is."""
        return self._inner.remaining()

    async def acquire(self) -> Lease:
        """Takes the lock and returns the lease. If the task is cancelled meanwhile, what
        was asked for is given back."""
        self._loop = asyncio.get_running_loop()
        taken = self._loop.run_in_executor(self._client._waits, self._inner.acquire)
        try:
            await asyncio.shield(taken)
        except asyncio.CancelledError:
            self._client._calls.submit(self._inner._abandon)
            taken.add_done_callback(self._return)
            raise
        return self

    def _return(self, taken: asyncio.Future[Any]) -> None:
        if not taken.cancelled() and taken.exception() is None:  # granted before it heard of it
            self._client._calls.submit(_quietly, self._inner.release)

    async def release(self) -> None:
        """Gives the lock back. Raises Lost if the lease had ended before, and Unavailable
        if the service does not confirm."""
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self._client._calls, self._inner.release))

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
        await self.acquire()
        self._body = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        body, self._body = self._body, None
        ours = self._cancelled and body is not None and body.uncancel() == 0
        try:
            await self.release()
        except (Lost, Unavailable) as end:
            if kind is None or ours and issubclass(kind, asyncio.CancelledError):
                raise end from None


def _quietly(release: Any) -> None:
    try:
        release()
    except (Lost, Unavailable):
        pass
