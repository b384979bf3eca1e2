"""Settings of clients and users: quotas (KIP-546), and SCRAM credentials (KIP-554)."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pykbroker.tools.cluster.asked_cluster import AskedCluster
from pykbroker.tools.cluster.failure import check, failed
from pykbroker_wire.errors import ErrorCode

#: SCRAM mechanisms: the protocol's number, and the hash function
MECHANISMS: Final = {"SCRAM-SHA-256": (1, "sha256"), "SCRAM-SHA-512": (2, "sha512")}
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@dataclass(slots=True, frozen=True)
class QuotaOf:
    """One part of an entity: a type ("user", "client-id", "ip") and a name. The name is None for the default of the
    type."""

    type: str
    name: str | None = None
    #: True in a request for all names of the type
    any: bool = False


def described(cluster: AskedCluster, wanted: Sequence[QuotaOf]) -> dict[tuple[QuotaOf, ...], dict[str, float]]:
    """Return the quotas of entities that have exactly these parts."""
    from pykbroker_wire.messages.describe_client_quotas import (
        ComponentData,
        DescribeClientQuotasRequest,
        DescribeClientQuotasResponse,
    )

    components = [
        ComponentData(
            entity_type=part.type,
            match_type=_ANY if part.any else _DEFAULT if part.name is None else _EXACT,
            match=None if part.any else part.name,
        )
        for part in wanted
    ]
    answer = cluster.ask(DescribeClientQuotasRequest(components=components, strict=True), DescribeClientQuotasResponse)
    check(answer.error_code, answer.error_message)
    return {
        tuple(QuotaOf(part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or []
    }


def alter(cluster: AskedCluster, entity: Sequence[QuotaOf], changes: Mapping[str, float | None]) -> None:
    """Change quotas of an entity. `changes`: key -> its new value, or None to delete it."""
    from pykbroker_wire.messages.alter_client_quotas import (
        AlterClientQuotasRequest,
        AlterClientQuotasResponse,
        OpData,
        RequestEntityData,
        RequestEntryData,
    )

    entry = RequestEntryData(
        entity=[RequestEntityData(entity_type=part.type, entity_name=part.name) for part in entity],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in changes.items()
        ],
    )
    answer = cluster.ask_controller(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse)
    for row in answer.entries:
        check(row.error_code, row.error_message)


def scram_of(cluster: AskedCluster, user: str | None) -> dict[str, list[tuple[str, int]]]:
    """Return user -> the mechanisms and iterations of its credentials, for one user or for all."""
    from pykbroker_wire.messages.describe_user_scram_credentials import (
        DescribeUserScramCredentialsRequest,
        DescribeUserScramCredentialsResponse,
        UserName,
    )

    names = {number: name for name, (number, _) in MECHANISMS.items()}
    request = DescribeUserScramCredentialsRequest(users=None if user is None else [UserName(name=user)])
    answer = cluster.ask_controller(request, DescribeUserScramCredentialsResponse)
    check(answer.error_code, answer.error_message)
    found = {}
    for row in answer.results:
        if row.error_code == ErrorCode.RESOURCE_NOT_FOUND:
            continue
        check(row.error_code, row.error_message)
        found[row.user] = [(names.get(one.mechanism, "UNKNOWN"), one.iterations) for one in row.credential_infos]
    return found


def alter_scram(
    cluster: AskedCluster, user: str, wanted: Mapping[str, tuple[int, str]], unwanted: Sequence[str]
) -> None:
    """Change SCRAM credentials. `wanted`: mechanism -> iterations and password, which this function salts. `unwanted`:
    mechanisms to delete.

    Raises AskFailed for an empty password before the request, as Apache Kafka's client does.
    """
    from pykbroker_wire.messages.alter_user_scram_credentials import (
        AlterUserScramCredentialsRequest,
        AlterUserScramCredentialsResponse,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )

    upsertions = []
    for mechanism, (iterations, password) in wanted.items():
        number, hashed = MECHANISMS[mechanism]
        if not password:
            raise failed(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Password must not be empty")
        salt = secrets.token_bytes(32)
        salted = hashlib.pbkdf2_hmac(hashed, password.encode(), salt, iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user, mechanism=number, iterations=iterations, salt=salt, salted_password=salted
            )
        )
    deletions = [ScramCredentialDeletion(name=user, mechanism=MECHANISMS[mechanism][0]) for mechanism in unwanted]
    request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
    for row in cluster.ask_controller(request, AlterUserScramCredentialsResponse).results:
        check(row.error_code, row.error_message)
