"""The stored form of a user's SCRAM password, in the metadata log, in the image, and for checking a proof."""

from __future__ import annotations

from typing import NamedTuple


class StoredKeys(NamedTuple):
    """The keys of one user and mechanism (RFC 5802). A password can be guessed from them, not read. Its text shows
    none."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "StoredKeys([hidden])"
