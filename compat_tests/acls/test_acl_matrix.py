"""Each API asks the authorizer the same as in Apache Kafka: the error codes and the omissions in answers are compared
for every client.

Only the values in differential/masks.py are masked: those that each node generates, and the order of hash maps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import cycle
from typing import Any

import pytest

from compat_tests.acls.acl_cases import CASES, Case
from compat_tests.acls.acl_clients import CLIENTS, EVERYTHING, NONE, OWNER, AclClient
from compat_tests.acls.acl_nodes import GuardedNode, both_guarded
from compat_tests.differential.masks import is_masked, sort_inside
from compat_tests.differential.plain import flatten
from compat_tests.differential.session import Step
from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker.metadata.features import METADATA_VERSION, METADATA_VERSION_LATEST
from pykbroker.security.acl import PatternType, Permission
from pykbroker.security.authorizer import CLUSTER_NAME, Operation, Resource
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode
from testkit.oracle.kafka import kafka_libs

pytestmark = pytest.mark.slow
SERVED = {api.key: api.on for api in TABLE}
WHERE = [
    pytest.param(case, on, id=f"{case.name}-{on.name}".lower())
    for case in CASES
    for on in (On.BROKER, On.CONTROLLER)
    if on in case.on & SERVED[case.key]
]


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[GuardedNode, GuardedNode]]:
    kafka_libs()
    with both_guarded() as pair:
        yield pair


def check(
    nodes: tuple[GuardedNode, GuardedNode], case: Case, on: On, clients: Sequence[AclClient], versions: Sequence[int]
) -> list[Step]:
    """Check that both nodes answer alike; returns pykbroker's answers."""
    theirs, ours = [], []
    for node in nodes:
        node.know_topics()
    for version in versions:
        for client in clients:
            for node in nodes:
                node.send(client, on, case, version)
            theirs.append(nodes[0].receive(client, on, case, version))
            ours.append(nodes[1].receive(client, on, case, version))
    answered = [pair for pair in zip(theirs, ours, strict=True) if not (case.kafka_fails and has_failed(pair[0]))]
    if found := list(differences(answered, on)):
        pytest.fail("\n".join(found), pytrace=False)
    assert not any(map(has_failed, ours))
    return ours


def has_failed(step: Step) -> bool:
    return isinstance(step.answered, dict) and step.answered.get("error_code") == ErrorCode.UNKNOWN_SERVER_ERROR


def differences(answered: Sequence[tuple[Step, Step]], on: On) -> Iterator[str]:
    for left, right in answered:
        kafka, own = seen(left, on), seen(right, on)
        if kafka != own:
            yield left.title
            for path in sorted(kafka.keys() | own.keys()):
                one, other = kafka.get(path, "(absent)"), own.get(path, "(absent)")
                if one != other:
                    yield f"    {path}: Apache Kafka {one}, pykbroker {other}"


def seen(step: Step, on: On) -> dict[str, Any]:
    """Return the compared part of an answer; differential/ compares the order of arrays."""
    answer = deepcopy(step.answered)
    if step.api == "ApiVersions":
        served = {int(key) for key, where in SERVED.items() if on in where}
        answer["api_keys"] = [row for row in answer["api_keys"] if row["api_key"] in served]
        answer["supported_features"] = []
    sort_inside(answer)
    return {path: value for path, value in flatten(answer).items() if not is_masked(step.api, path)}


def versions(case: Case) -> range:
    api = APIS[case.key]
    return range(max(api.min_version, case.from_version), api.max_version + 1)


@pytest.mark.parametrize(("case", "on"), WHERE)
def test_each_client_in_the_newest_version(guarded: tuple[GuardedNode, GuardedNode], case: Case, on: On) -> None:
    check(guarded, case, on, CLIENTS, versions(case)[-1:])


@pytest.mark.parametrize(("case", "on"), WHERE)
def test_each_version(guarded: tuple[GuardedNode, GuardedNode], case: Case, on: On) -> None:
    """Three clients ask in the first version, and one of them in turn in each later one."""
    first, *later = versions(case)
    said = check(guarded, case, on, (NONE, OWNER, EVERYTHING), [first])
    for version, client in zip(later, cycle((OWNER, EVERYTHING, NONE)), strict=False):
        check(guarded, case, on, [client], [version])
    # A row in which rules change nothing would compare nothing.
    answers = [[seen(step, on) for step in said if step.label == client.name] for client in (NONE, EVERYTHING)]
    assert (answers[0] != answers[1]) == bool(case.resources)


@pytest.mark.long(amount="each client in each version of each API")
@pytest.mark.parametrize(("case", "on"), WHERE)
def test_each_client_in_each_version(guarded: tuple[GuardedNode, GuardedNode], case: Case, on: On) -> None:
    check(guarded, case, on, CLIENTS, versions(case))


RANGES = ("127.0.0.0/8", "127.9.9.9/8", "127.0.0.1/32", "::/0", "2001:DB8::/32", "10.0.0.0/33", "10.0.0/8", "x/8", "/")


def test_ranges_of_addresses(guarded: tuple[GuardedNode, GuardedNode]) -> None:
    """KIP-1276: which hosts of ACLs are accepted at which metadata.version, and whom they mean. It is the last test,
    because the nodes are at the levels of 4.4 afterwards."""

    def creation(host: str, permission: Permission = Permission.ALLOW) -> dict[str, Any]:
        return {
            "resource_type": Resource.CLUSTER,
            "resource_name": CLUSTER_NAME,
            "resource_pattern_type": PatternType.LITERAL,
            "principal": f"User:{NONE.name}",
            "host": host,
            "operation": Operation.DESCRIBE_CONFIGS,
            "permission_type": permission,
        }

    def created(node: GuardedNode, *creations: dict[str, Any]) -> list[int]:
        answer = node.ask(EVERYTHING, "CreateAcls", 3, {"creations": list(creations)})
        return [result.error_code for result in answer.results]

    def allowed(node: GuardedNode) -> bool:
        return not node.ask(NONE, "ListConfigResources", 1, {}).error_code

    hosts = [creation(host) for host in (*RANGES, "", "10.0.0.1")]
    unmet, invalid = ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST
    for node in guarded:
        assert created(node, *hosts[:-1]) == [unmet] * len(RANGES) + [invalid]
        level = {"feature": METADATA_VERSION, "max_version_level": METADATA_VERSION_LATEST, "upgrade_type": 1}
        updated = node.ask(EVERYTHING, "UpdateFeatures", 2, {"feature_updates": [level], "timeout_ms": 20_000})
        assert updated.error_code == 0
        assert not allowed(node)
        assert created(node, creation("10.0.0.0/8"), creation("::/0")) == [0, 0]
        assert created(node, *hosts) == [0] * 5 + [invalid] * 5 + [0]
        node.until(lambda node=node: allowed(node))  # type: ignore[misc]
        assert created(node, creation("126.0.0.0/7", Permission.DENY)) == [0]
        node.until(lambda node=node: not allowed(node))  # type: ignore[misc]
