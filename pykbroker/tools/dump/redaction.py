"""Hides secrets of the metadata log in the output of `logs dump`: dynamic passwords, and credentials of SCRAM.

Responsible for single records: for their JSON, with the texts of Apache Kafka's RecordRedactor, and for their output
without a decoder. Apache Kafka's DumpLogSegments hides nothing. Records of users' topics are shown.
"""

from __future__ import annotations

from typing import Any, Final

from pykbroker.config.describe import RESOURCE_CLIENT_METRICS, may_be_secret
from pykbroker_wire.primitives import DecodeError, TopLevel
from pykbroker_wire.stored.metadata.config_record import ConfigRecord
from pykbroker_wire.stored.metadata.user_scram_credential_record import UserScramCredentialRecord
from pykbroker_wire.stored_framing import FRAME_VERSION, decode_metadata_record

REDACTED: Final = "(redacted)"


#: The first bytes of a record with a secret.
_FRAMES: Final = tuple(bytes((FRAME_VERSION, each.API_KEY)) for each in (ConfigRecord, UserScramCredentialRecord))


def redacted(message: TopLevel, data: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON form of a record without its secrets. `data` is the whole JSON form."""
    match message:
        case ConfigRecord() if message.value is not None and _is_secret(message.resource_type, message.name):
            return {**data, "value": REDACTED}
        case UserScramCredentialRecord():
            return {**data, "salt": REDACTED, "storedKey": REDACTED, "serverKey": REDACTED}
    return data


def has_secret(value: bytes, *, of_metadata: bool) -> bool:
    """Return True if a value without a key is a record of the metadata log with a secret, so that its bytes must not be
    printed. `of_metadata`: the value is in that log or a snapshot of it, where a record that cannot be decoded counts
    as a secret."""
    if not value.startswith(_FRAMES):
        return False
    try:
        message = decode_metadata_record(value)
    except DecodeError:
        return of_metadata
    return redacted(message, {}) != {}


def _is_secret(resource_type: int, name: str) -> bool:
    return resource_type != RESOURCE_CLIENT_METRICS and may_be_secret(resource_type, name)
