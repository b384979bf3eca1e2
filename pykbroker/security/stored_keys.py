"""The stored form of a user's SCRAM password, which the metadata log and the image have, and which checks a proof."""

from __future__ import annotations

from typing import NamedTuple


class StoredKeys(NamedTuple):
    """The keys of one user for one mechanism (RFC 5802). They do not contain the password, but guesses of it can be
    checked with them. Its `repr` shows no key."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return "StoredKeys([hidden])"
