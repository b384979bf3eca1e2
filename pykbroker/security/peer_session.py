"""Which principal speaks over a connection, as the protocol of its listener has established it.

Not responsible for what the principal may do (authorizer.py) nor for how it proved its name.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class PeerSession:
    """One principal, `User:name`. Peers without authentication share ANONYMOUS."""

    principal: str


ANONYMOUS = PeerSession("User:ANONYMOUS")
