"""Locks across machines, by the HTTP service of Leasehold (`leasehold serve`).

    from leasehold import Client

    client = Client("http://127.0.0.1:8080")
    with client.lock("orders/42", wait=10) as lease:
        charge(order, fence=lease.token)
        lease.check()  # raises Lost if the lock may be somebody else's by now
        confirm(order)

The standard library is all that it needs. Programs on asyncio use `leasehold.aio`.
"""

from ._client import Client, Lease, Lock
from ._errors import Held, LeaseholdError, Lost, Refused, Unavailable

__all__ = ["Client", "Held", "Lease", "LeaseholdError", "Lock", "Lost", "Refused", "Unavailable"]
__version__ = "0.1.0"
