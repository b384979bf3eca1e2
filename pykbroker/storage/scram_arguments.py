"""`--add-scram`: turns kafka-storage's arguments into records of users. Apache Kafka's ScramParser, KIP-900.

Its texts are Apache Kafka's if they contain nothing secret. No error contains a password.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Final

from pykbroker.metadata.features import METADATA_VERSION, SCRAM_FROM, metadata_version_name
from pykbroker.metadata.scram_record import scram_record
from pykbroker.sasl.scram import (
    MAX_ITERATIONS,
    MECHANISMS,
    MIN_ITERATIONS,
    ScramMechanism,
    random_string,
    salted_password,
    stored_keys,
)
from pykbroker_wire.stored.metadata import UserScramCredentialRecord

_INTEGER: Final = re.compile("[+-]?[0-9]{1,10}")


def scram_records(arguments: Iterable[str], levels: Mapping[str, int]) -> list[UserScramCredentialRecord]:
    """Return one record for each argument. Raises ValueError, also if the cluster begins below SCRAM's
    metadata.version."""
    arguments = list(arguments)
    if arguments and levels[METADATA_VERSION] < SCRAM_FROM:
        raise ValueError(f"SCRAM is only supported in {METADATA_VERSION} {metadata_version_name(SCRAM_FROM)} or later.")
    return [_record(*_mechanism_and_settings(argument)) for argument in arguments]


def _mechanism_and_settings(argument: str) -> tuple[ScramMechanism, str]:
    name, equals, written = argument.strip().partition("=")
    if not equals:
        raise ValueError("Failed to find equals sign in SCRAM argument")
    mechanism = MECHANISMS.get(name)
    if mechanism is None:
        raise ValueError(f"The add-scram mechanism {name} is not supported.")
    if not written.startswith("["):
        raise ValueError("Expected configuration string to start with [")
    if not written.endswith("]"):
        raise ValueError("Expected configuration string to end with ]")
    return mechanism, written[1:-1]


def _settings(written: str) -> dict[str, str]:
    settings = {}
    for part in re.sub(",+$", "", written).split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError("No equals sign found in a SCRAM component")
        if len(value) >= 2 and value[0] == value[-1] == '"':
            value = value[1:-1]
        settings[name] = value
    return settings


def _record(mechanism: ScramMechanism, written: str) -> UserScramCredentialRecord:
    settings = _settings(written)
    name = settings.pop("name", None)
    if name is None:
        raise ValueError("You must supply 'name' to add-scram")
    salt = settings.pop("salt", None)
    salt_bytes = random_string().encode() if salt is None else _decoded(salt, f"Failed to decode given salt: {salt}")
    iterations = _iterations(mechanism, settings.pop("iterations", None))
    password, salted_text = settings.pop("password", None), settings.pop("saltedpassword", None)
    if password is None and salted_text is None:
        raise ValueError("You must supply one of 'password' or 'saltedpassword' to add-scram")
    if password is None and salt is None:
        raise ValueError("You must supply 'salt' with 'saltedpassword' to add-scram")
    if settings:
        raise ValueError(f"Unknown SCRAM configurations: {', '.join(sorted(settings))}")
    if password is not None:
        salted = salted_password(mechanism, password, salt_bytes, iterations)
    else:
        salted = _decoded(salted_text or "", "Failed to decode given saltedPassword")
    return scram_record(name, mechanism.number, stored_keys(mechanism, salted, salt_bytes, iterations))


def _iterations(mechanism: ScramMechanism, written: str | None) -> int:
    if written is None:
        return MIN_ITERATIONS
    if not _INTEGER.fullmatch(written) or not -(1 << 31) <= int(written) < 1 << 31:
        raise ValueError(f"Failed to parse iterations count: {written}")
    iterations = int(written)
    if iterations < MIN_ITERATIONS:
        raise ValueError(f"The 'iterations' value must be >= {MIN_ITERATIONS} for add-scram using {mechanism.constant}")
    if iterations > MAX_ITERATIONS:
        raise ValueError(f"The 'iterations' value must be <= {MAX_ITERATIONS} for add-scram using {mechanism.constant}")
    return iterations


def _decoded(text: str, message: str) -> bytes:
    """Decode base64. Java's decoder needs no padding."""
    padded = text if "=" in text else text + "=" * (-len(text) % 4)
    try:
        return base64.b64decode(padded, validate=True)
    except binascii.Error:
        raise ValueError(message) from None
