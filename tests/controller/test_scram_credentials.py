"""AlterUserScramCredentials as a decision: Apache Kafka's ScramControlManager."""

from __future__ import annotations

import pytest

from pykbroker.controller.result import TooManyRecords
from pykbroker.controller.scram_credentials import alter_credentials
from pykbroker.sasl.scram import SHA_256, salted_password, stored_keys
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pykbroker_wire.stored.metadata import FeatureLevelRecord
from tests.controller.world import Pure

SALTED = salted_password(SHA_256, "secret", b"salt", 4096)
TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")
OK = (ErrorCode.NONE, None)


def up(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=SALTED
    )


def down(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    pure: Pure, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[one for one in changes if isinstance(one, ScramCredentialDeletion)],
        upsertions=[one for one in changes if isinstance(one, ScramCredentialUpsertion)],
    )
    return {user: tuple(verdict) for user, verdict in pure.apply(alter_credentials(pure.state, request)).items()}


def known(pure: Pure) -> set[tuple[int, str]]:
    return set(pure.state.image.scram)


def test_keys_are_kept_and_no_salted_password() -> None:
    pure = Pure()
    assert alter(pure, up("alice")) == {"alice": OK}
    kept = pure.state.image.scram[1, "alice"]
    assert tuple(kept) == (b"salt", *_keys(), 4096)
    assert SALTED not in kept
    # A mechanism is a credential of its own.
    assert alter(pure, up("alice", 2, 8192)) == {"alice": OK}
    assert known(pure) == {(1, "alice"), (2, "alice")}
    assert alter(pure, down("alice")) == {"alice": OK}
    assert known(pure) == {(2, "alice")}


def _keys() -> tuple[bytes, bytes]:
    keys = stored_keys(SHA_256, SALTED, b"salt", 4096)
    return keys.stored_key, keys.server_key


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        (up(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (down(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (up("a", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (up("a", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (down("a", -1), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (up("a", 1, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (up("a", 1, 16385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (down("a"), ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
    ],
)
def test_what_is_refused(change: ScramCredentialUpsertion | ScramCredentialDeletion, code: int, message: str) -> None:
    """Refuse the change without an effect on the others of the request."""
    pure = Pure()
    assert alter(pure, change, up("other", 1, 16384)) == {change.name: (code, message), "other": OK}
    assert known(pure) == {(1, "other")}


def test_a_user_may_be_named_once() -> None:
    pure = Pure()
    alter(pure, up("a"), up("b"))
    assert alter(pure, down("a"), down("a")) == {"a": TWICE}
    assert alter(pure, up("c"), up("c", 2)) == {"c": TWICE}
    assert alter(pure, down("a"), up("a")) == {"a": TWICE}
    assert alter(pure, up("c"), up("c"), up("c")) == {"c": TWICE}
    assert known(pure) == {(1, "a"), (1, "b")}


def test_an_old_metadata_version_knows_none() -> None:
    pure = Pure()
    pure.replay([FeatureLevelRecord(name="metadata.version", feature_level=10)])
    refused = (ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    assert alter(pure, up("a"), down("b")) == {"a": refused, "b": refused}


def test_a_request_is_one_batch() -> None:
    with pytest.raises(TooManyRecords):
        alter(Pure(), *(up(str(number)) for number in range(10_001)))
