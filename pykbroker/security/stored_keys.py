"""What is kept of a user's password for SCRAM: in the metadata log, in the image, and where a proof is checked."""

from __future__ import annotations

from typing import NamedTuple


class StoredKeys(NamedTuple):
    """Of one user and mechanism (RFC 5802). A password can be guessed from them, and not read. Its text shows none."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "StoredKeys([hidden])"
