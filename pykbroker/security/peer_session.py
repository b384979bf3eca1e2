"""The principal of a connection, which the security protocol of its listener has established.

Not responsible for the permissions of the principal (authorizer.py) nor for its authentication.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class PeerSession:
    """One principal, `User:name`. Peers without authentication share ANONYMOUS."""

    principal: str


ANONYMOUS = PeerSession("User:ANONYMOUS")
