"""The record of a user's SCRAM keys. The formatter, the controller and the snapshot use it."""

from __future__ import annotations

from pykbroker.security.stored_keys import StoredKeys
from pykbroker_wire.stored.metadata import UserScramCredentialRecord


def scram_record(name: str, mechanism: int, keys: StoredKeys) -> UserScramCredentialRecord:
    """`mechanism` is its number in the protocol."""
    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism,
        salt=keys.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=keys.iterations,
    )
