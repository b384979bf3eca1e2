"""Error codes for clients that do not know a newer error code."""

from __future__ import annotations

from pykbroker_wire.errors import ErrorCode


def known_to(client_version: int, fenced_from: int, code: ErrorCode) -> ErrorCode:
    """Return the error code for a client. PRODUCER_FENCED is newer than these APIs (KIP-588), so older clients get
    INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and client_version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
