"""Dead letters where the principal of the brokers may not write to their topic: Apache Kafka 4.4 beside pykbroker.

The brokers are User:ANONYMOUS, which is no super user. A record that is rejected then is archived without a letter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from compat_tests.node import Node, Pykbroker
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.messages.create_acls import AclCreation, CreateAclsRequest
from pykbroker_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from testkit import needs
from testkit.nodes.nodes import eventually
from testkit.nodes.rejecting_member import RejectingMember, enable_letters, letter_offsets
from testkit.nodes.wire import Wire, batch
from testkit.oracle.kafka import NEWEST, ApacheKafka, kafka_libs
from testkit.share_requests import REJECT

pytestmark = pytest.mark.slow

CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
    "share.coordinator.state.topic.num.partitions": "1",
}
TOPIC_RESOURCE, LITERAL = 2, 3
READ, WRITE, DESCRIBE, ALTER_CONFIGS = 3, 4, 8, 11
DENY, ALLOW = 2, 3
QUEUE = "dlq.g"
REFUSED = 20


@pytest.fixture(scope="module", params=["pykbroker", "apache-kafka"])
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    if request.param == "pykbroker":
        ours = Pykbroker(CONFIG)
        yield ours.start()
        ours.close()
    else:
        needs.java()
        kafka_libs(NEWEST)
        with ApacheKafka(CONFIG, version=NEWEST) as theirs:
            yield theirs


def rule(operation: int, permission: int) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC_RESOURCE,
        resource_name=QUEUE,
        resource_pattern_type=LITERAL,
        principal="User:ANONYMOUS",
        host="*",
        operation=operation,
        permission_type=permission,
    )


def make(wire: Wire, *rules: AclCreation) -> None:
    answer = wire.call(CreateAclsRequest(creations=list(rules)))
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE] * len(rules)


def may_write(wire: Wire) -> bool:
    code = ErrorCode(wire.produce(QUEUE, batch(b"no letter")).error_code)
    return code is not ErrorCode.TOPIC_AUTHORIZATION_FAILED


def level_of_shares(wire: Wire) -> int:
    """Return the finalised level of share.version, as the broker knows it."""
    asked = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    found = wire.call(asked, 4).finalized_features
    return next((each.max_version_level for each in found if each.name == "share.version"), 0)


def allow_writing(wire: Wire) -> None:
    denial = DeleteAclsFilter(
        resource_type_filter=TOPIC_RESOURCE,
        resource_name_filter=QUEUE,
        pattern_type_filter=LITERAL,
        principal_filter="User:ANONYMOUS",
        host_filter="*",
        operation=WRITE,
        permission_type=DENY,
    )
    answer: Any = wire.call(DeleteAclsRequest(filters=[denial]))
    assert len(answer.filter_results[0].matching_acls) == 1
    make(wire, rule(WRITE, ALLOW))


def test_without_write_records_are_archived_and_nothing_waits(node: Node) -> None:
    with Wire(node.bootstrap) as wire:
        level = FeatureUpdateKey(feature="share.version", max_version_level=2, upgrade_type=1)
        answer = wire.call(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[level]))
        assert answer.error_code == ErrorCode.NONE
        eventually("share.version 2", lambda: level_of_shares(wire) == 2)
        wire.create("t")
        wire.create(QUEUE)
        enable_letters(wire, QUEUE)
        make(wire, *(rule(operation, ALLOW) for operation in (READ, DESCRIBE, ALTER_CONFIGS)), rule(WRITE, DENY))
        eventually("the rule acts", lambda: not may_write(wire))
        wire.produce("t", batch(*[b"x"] * (REFUSED + 1)))
        member = RejectingMember(wire, "g", "t")
        member.begin()
        member.queue(QUEUE)
        assert member.acquire() == [(0, REFUSED, 1)]
        began = time.monotonic()
        for offset in range(REFUSED):
            member.acknowledge((offset, offset, REJECT))
        eventually("the records are archived", lambda: member.is_done(REFUSED))
        # A try that is repeated would take two seconds for each.
        assert time.monotonic() - began < REFUSED
        allow_writing(wire)
        eventually("the other rule acts", lambda: may_write(wire))
        member.acknowledge((REFUSED, REFUSED, REJECT))
        eventually("a letter", lambda: letter_offsets(wire, QUEUE) == [REFUSED])
        eventually("all records are archived", lambda: member.is_done(REFUSED + 1))
    if isinstance(node, Pykbroker):
        lines = [line for line in node.log_file.read_text().splitlines() if "dead letters" in line]
        [line] = [line for line in lines if " WARNING " in line or " WARN " in line]
        assert "Group g: the records from offset 0 to 0 of partition 0 get no dead letters" in line
        assert f"answers TOPIC_AUTHORIZATION_FAILED for partition {QUEUE}-0." in line
