"""The principal of a connection, as the protocol of its listener has established it.

Not responsible for the permissions of the principal (authorizer.py) nor for its authentication.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class PeerSession:
    """One principal, `User:name`. Peers without authentication share ANONYMOUS."""

    principal: str


ANONYMOUS = PeerSession("User:ANONYMOUS")
