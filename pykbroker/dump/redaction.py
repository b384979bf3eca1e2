"""What `logs dump` hides of the metadata log: dynamic passwords, and what is kept of SCRAM passwords.

Responsible for single records: their JSON, with the words of Apache Kafka's RecordRedactor, and what is printed of them
where no decoder was asked for. Apache Kafka's DumpLogSegments hides nothing. Records of topics are people's own and are
shown.
"""

from __future__ import annotations

from typing import Any, Final

from pykbroker.config.describe import RESOURCE_BROKER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP, RESOURCE_TOPIC
from pykbroker.config.key_table import GROUP_KEYS, TOPIC_KEYS
from pykbroker.config.kinds import PASSWORD
from pykbroker.config.load import find_key
from pykbroker_wire.primitives import DecodeError, TopLevel
from pykbroker_wire.stored.metadata.config_record import ConfigRecord
from pykbroker_wire.stored.metadata.user_scram_credential_record import UserScramCredentialRecord
from pykbroker_wire.stored_framing import FRAME_VERSION, decode_metadata_record

REDACTED: Final = "(redacted)"
_KEYS: Final = {RESOURCE_TOPIC: TOPIC_KEYS, RESOURCE_GROUP: GROUP_KEYS}


#: How a record with one begins.
_FRAMES: Final = tuple(bytes((FRAME_VERSION, each.API_KEY)) for each in (ConfigRecord, UserScramCredentialRecord))


def redacted(message: TopLevel, data: dict[str, Any]) -> dict[str, Any]:
    """`data` is the JSON form of the record."""
    match message:
        case ConfigRecord() if message.value is not None and _is_secret(message.resource_type, message.name):
            return {**data, "value": REDACTED}
        case UserScramCredentialRecord():
            return {**data, "salt": REDACTED, "storedKey": REDACTED, "serverKey": REDACTED}
    return data


def has_secret(value: bytes, *, of_metadata: bool) -> bool:
    """Whether the value of a record without a key is a record of the metadata log with a secret, whose bytes are not to
    be printed. `of_metadata`: it is in that log or a snapshot of it, where one that cannot be read counts too."""
    if not value.startswith(_FRAMES):
        return False
    try:
        message = decode_metadata_record(value)
    except DecodeError:
        return of_metadata
    return redacted(message, {}) != {}


def _is_secret(resource_type: int, name: str) -> bool:
    """Passwords, and keys that are not known: they may be for one."""
    if resource_type == RESOURCE_CLIENT_METRICS:
        return False
    key = find_key(name) if resource_type == RESOURCE_BROKER else _KEYS.get(resource_type, {}).get(name)
    return key is None or key.type is PASSWORD
