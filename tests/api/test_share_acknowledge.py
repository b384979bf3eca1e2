"""ShareAcknowledge over real leaders of share partitions: sessions, results of each partition, errors.

Numbers of edge cases are those of Apache Kafka's behaviour that was measured with 4.3.1.
"""

from __future__ import annotations

from typing import Any

import pytest

from pykbroker.net.promise import Promise
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_acknowledge import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from testkit.share_requests import ACCEPT, GROUP, REJECT, RELEASE, RENEW, acquired, outcomes
from tests.api.broker_half import Denied
from tests.api.share_half import ShareHalf, acknowledges, came, fetches
from tests.replica.world import topic_id

NONE = ErrorCode.NONE
UNKNOWN = b"no such topic id"


@pytest.fixture
def half() -> ShareHalf:
    """A half whose member m has acquired offsets 0 to 5 of partition 0, and 0 to 1 of partition 1."""
    made = ShareHalf()
    made.create(partitions=3)
    made.write(made.replicas.get("t", 0), 6)
    made.write(made.replicas.get("t", 1), 2)
    assert acquired(made.fetch(fetches(0, 1))) == {0: [(0, 5, 1)], 1: [(0, 1, 1)]}
    return made


def test_records_are_acknowledged_when_that_is_written(half: ShareHalf) -> None:
    half.keeper.waits = True
    answer = half.acknowledge(acknowledges({0: [(0, 1, ACCEPT), (2, 2, REJECT), (3, 3, RELEASE)], 1: [(0, 0, 0)]}))
    assert isinstance(answer, Promise)
    assert half.keeper.writes == [[(0, 1, 2, 1), (2, 2, 4, 1), (3, 3, 0, 1)], [(0, 0, 4, 1)]]
    half.keeper.answer()
    result = came(answer)
    assert outcomes(result) == {0: NONE, 1: NONE}
    assert result.acquisition_lock_timeout_ms == 30_000
    assert acquired(half.fetch(fetches(0, epoch=2))) == {0: [(3, 3, 2)]}


def test_a_write_that_fails_leaves_the_records_locked(half: ShareHalf) -> None:
    half.keeper.error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert outcomes(half.acknowledge(acknowledges({0: [(0, 5, ACCEPT)]})))[0] == ErrorCode.COORDINATOR_NOT_AVAILABLE
    half.keeper.error = NONE
    assert outcomes(half.acknowledge(acknowledges({0: [(0, 5, ACCEPT)]}, epoch=2))) == {0: NONE}


def test_the_errors_of_partitions(half: ShareHalf) -> None:
    """Edge cases 16, 18, 20, 22 and 23."""

    def code(epoch: int, index: int, *ranges: tuple[int, int, int]) -> ErrorCode:
        return outcomes(half.acknowledge(acknowledges({index: list(ranges)}, epoch=epoch)))[index]

    assert code(1, 0, (0, 1, 5)) == ErrorCode.INVALID_REQUEST
    assert code(2, 0, (1, 0, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert code(3, 0, (4, 5, ACCEPT), (0, 1, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert code(4, 0, (0, 6, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert code(5, 2, (0, 1, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(6, 7, (0, 1, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert code(7, 0, (2, 3, ACCEPT)) == NONE
    assert code(8, 0, (0, 5, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert code(9, 0, (0, 1, ACCEPT)) == NONE, "the range before had one bad offset, and nothing of it was taken"
    assert code(10, 0, (0, 1, ACCEPT)) == NONE, "offsets before the start are ignored (edge case 19)"


def test_an_error_of_a_leader_has_a_text(half: ShareHalf) -> None:
    def text(epoch: int, index: int, *ranges: tuple[int, int, int]) -> str | None:
        answer = half.acknowledge(acknowledges({index: list(ranges)}, epoch=epoch))
        found: str | None = answer.responses[0].partitions[0].error_message
        return found

    assert text(1, 0, (0, 1, 5)) is None, "malformed ranges have none, as in Apache Kafka"
    assert text(2, 0, (0, 6, ACCEPT)) == ErrorCode.INVALID_REQUEST.message
    assert text(3, 2, (0, 0, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.message
    assert text(4, 7, (0, 0, ACCEPT)) is None
    assert text(5, 0, (0, 1, ACCEPT)) is None


def test_a_topic_that_does_not_exist_and_one_that_may_not_be_read(half: ShareHalf) -> None:
    ranges = [AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])]
    partitions = [AcknowledgePartition(partition_index=0, acknowledgement_batches=ranges)]
    half.services.authorizer = Denied((Operation.READ, Resource.TOPIC, "t"))
    topics = [AcknowledgeTopic(topic_id=each, partitions=partitions) for each in (UNKNOWN, topic_id("t"))]
    answer = half.acknowledge(acknowledges({}, topics=topics))
    assert [each.partitions[0].error_code for each in answer.responses] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ]


def test_a_partition_that_this_broker_does_not_lead(half: ShareHalf) -> None:
    half.world.create("u", replicas=(1, 2))
    half.with_broker(2)
    half.world.change(half.replicas.get("u", 0), leader=2)
    half.share_version(1)
    ranges = [AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])]
    topics = [
        AcknowledgeTopic(
            topic_id=topic_id("u"), partitions=[AcknowledgePartition(partition_index=0, acknowledgement_batches=ranges)]
        )
    ]
    answer = half.acknowledge(acknowledges({}, topics=topics))
    assert outcomes(answer) == {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    leader = answer.responses[0].partitions[0].current_leader
    assert (leader.leader_id, leader.leader_epoch) == (2, 1)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(2, 9092)]


def test_partitions_with_an_empty_list(half: ShareHalf) -> None:
    """Edge case 24."""
    assert outcomes(half.acknowledge(acknowledges({0: []}))) == {}
    assert outcomes(half.acknowledge(acknowledges({0: [], 1: [(0, 1, ACCEPT)]}, epoch=2))) == {0: NONE, 1: NONE}


def test_another_member_may_not_acknowledge(half: ShareHalf) -> None:
    """Edge case 21."""
    half.fetch(fetches(0, member_id="n"))
    answer = half.acknowledge(acknowledges({0: [(0, 5, ACCEPT)]}, member_id="n"))
    assert outcomes(answer) == {0: ErrorCode.INVALID_RECORD_STATE}


def test_a_renewal(half: ShareHalf) -> None:
    """Edge cases 17 and 29."""
    assert outcomes(half.acknowledge(acknowledges({0: [(0, 1, RENEW)]}))) == {0: ErrorCode.INVALID_REQUEST}
    half.loop.advance(20)
    assert outcomes(half.acknowledge(acknowledges({0: [(0, 1, RENEW)]}, epoch=2, is_renew_ack=True))) == {0: NONE}
    half.loop.advance(15)
    assert acquired(half.fetch(fetches(0, member_id="n"))) == {0: [(2, 5, 2)]}


def test_version_1_knows_no_renewal(half: ShareHalf) -> None:
    answer = half.acknowledge(acknowledges({0: [(0, 1, RENEW)]}), version=1)
    assert outcomes(answer) == {0: ErrorCode.INVALID_REQUEST}


def test_the_checks_come_in_their_order(half: ShareHalf) -> None:
    """Edge cases 12 to 14."""

    def code(epoch: int = 1, **fields: Any) -> ErrorCode:
        answer = half.acknowledge(acknowledges({0: [(0, 1, ACCEPT)]}, epoch=epoch, **fields))
        assert (answer.responses, answer.acquisition_lock_timeout_ms) == ([], 0)
        return ErrorCode(answer.error_code)

    assert code(group_id=None) == ErrorCode.INVALID_REQUEST
    assert code(member_id="") == ErrorCode.INVALID_REQUEST
    assert code(0) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(7) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert code(member_id="n") == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert code(-1, member_id="n") == ErrorCode.SHARE_SESSION_NOT_FOUND
    half.services.authorizer = Denied((Operation.READ, Resource.GROUP, GROUP))
    assert code() == ErrorCode.GROUP_AUTHORIZATION_FAILED
    half.share_version(0)
    assert code() == ErrorCode.UNSUPPORTED_VERSION
    assert half.keeper.writes == []


def test_the_last_acknowledgement_closes_the_session(half: ShareHalf) -> None:
    """Edge case 27."""
    half.fetch(fetches(0, 1, member_id="n"))
    assert outcomes(half.acknowledge(acknowledges({0: [(0, 1, ACCEPT)]}, epoch=-1))) == {0: NONE}
    assert half.acknowledge(acknowledges({}, epoch=2)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert acquired(half.fetch(fetches(epoch=1, member_id="n"))) == {0: [(2, 5, 2)], 1: [(0, 1, 2)]}


def test_a_session_that_is_opened_anew_meanwhile_is_not_closed(half: ShareHalf) -> None:
    half.keeper.waits = True
    closing = half.acknowledge(acknowledges({0: [(0, 5, ACCEPT)]}, epoch=-1))
    half.fetch(fetches(0, 1))
    half.keeper.answer()
    assert outcomes(came(closing)) == {0: NONE}
    assert len(half.leaders.sessions) == 1
