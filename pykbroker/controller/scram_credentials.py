"""Credentials of SCRAM users: AlterUserScramCredentials (KIP-554), as in Apache Kafka's ScramControlManager.

The controller receives salted passwords and keeps only keys. There is one verdict for each user. A user that a request
names twice is refused, whatever the mechanisms.
"""

from __future__ import annotations

from typing import Final

from pykbroker.controller.result import OK, RecordList, Result, Verdict, failure
from pykbroker.controller.state import ControllerState
from pykbroker.metadata.features import SCRAM_FROM
from pykbroker.metadata.scram_record import scram_record
from pykbroker.sasl.scram import (
    BY_NUMBER,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    stored_keys,
)
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from pykbroker_wire.stored.metadata import RemoveUserScramCredentialRecord, UserScramCredentialRecord

_TWICE: Final = failure(ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def alter_credentials(state: ControllerState, request: AlterUserScramCredentialsRequest) -> Result[dict[str, Verdict]]:
    """Alter credentials. The response has the verdict of each user."""
    deletions: dict[str, ScramCredentialDeletion] = {}
    upsertions: dict[str, ScramCredentialUpsertion] = {}
    refused: dict[str, Verdict] = {}
    for deletion in request.deletions:
        name = deletion.name
        if name in refused:
            continue
        if deletions.pop(name, None) is not None:
            refused[name] = _TWICE
        elif (verdict := _check_deletion(state, deletion)).failed:
            refused[name] = verdict
        else:
            deletions[name] = deletion
    for upsertion in request.upsertions:
        name = upsertion.name
        if name in refused:
            continue
        removed = deletions.pop(name, None)
        if removed is not None or upsertions.pop(name, None) is not None:
            refused[name] = _TWICE
        elif (verdict := _check_upsertion(state, upsertion)).failed:
            refused[name] = verdict
        else:
            upsertions[name] = upsertion
    records = RecordList()
    records.check_room(len(deletions) + len(upsertions))
    records += [RemoveUserScramCredentialRecord(name=one.name, mechanism=one.mechanism) for one in deletions.values()]
    records += map(_record, upsertions.values())
    return Result({**dict.fromkeys([*deletions, *upsertions], OK), **refused}, records)


def _record(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    keys = stored_keys(
        BY_NUMBER[upsertion.mechanism], bytes(upsertion.salted_password), bytes(upsertion.salt), upsertion.iterations
    )
    return scram_record(upsertion.name, upsertion.mechanism, keys)


def _check_deletion(state: ControllerState, deletion: ScramCredentialDeletion) -> Verdict:
    verdict = _check(state, deletion.name, deletion.mechanism)
    if not verdict.failed and (deletion.mechanism, deletion.name) not in state.image.scram:
        return failure(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return verdict


def _check_upsertion(state: ControllerState, upsertion: ScramCredentialUpsertion) -> Verdict:
    verdict = _check(state, upsertion.name, upsertion.mechanism)
    if verdict.failed:
        return verdict
    if upsertion.iterations < MIN_ITERATIONS:
        return failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > MAX_ITERATIONS:
        return failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    return OK


def _check(state: ControllerState, name: str, mechanism: int) -> Verdict:
    if state.metadata_version < SCRAM_FROM:
        return failure(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
    if not name:
        return failure(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if mechanism not in BY_NUMBER:
        return failure(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    return OK
