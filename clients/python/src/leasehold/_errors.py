from __future__ import annotations

from typing import Any


class LeaseholdError(Exception):
    """What every error of this package is."""


class Held(LeaseholdError):
    """Others held the lock for as long as was waited. Nothing was taken."""

    def __init__(self, name: str, answer: dict[str, Any]) -> None:
        self.name = name
        #: Who holds it, as far as the service tells: dicts with leaseId, owner, and more.
        self.holders: list[dict[str, Any]] = answer.get("holders") or []
        #: The place in the queue that was reached; 0 without one.
        self.position: int = answer.get("position", 0)
        by = ", ".join(str(h.get("owner", "?")) for h in self.holders)
        super().__init__(f"lock {name!r} is held" + (f" by {by}" if by else " by others"))


class Refused(LeaseholdError):
    """The service refuses in a way that asking again does not change: a missing right, an
    invalid name, another limit of places."""

    def __init__(self, name: str, status: int, answer: dict[str, Any]) -> None:
        self.status = status
        #: The problem's type, of which docs/http.md tells.
        self.type: str = answer.get("type", "")
        super().__init__(f"lock {name!r}: {answer.get('detail') or answer.get('title') or status}")


class Lost(LeaseholdError):
    """The lease ended before it was released: the work was unprotected from then on."""


class Unavailable(LeaseholdError):
    """The service did not answer for longer than max_outage, or cannot be used, for example
    because its certificate is not valid. The message has its URL and the cause, which is
    also __cause__. What may have been taken is given back, or ends with its TTL."""
