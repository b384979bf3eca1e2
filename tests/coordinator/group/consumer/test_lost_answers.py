"""An answer that never reaches its member: the next connection brings the assignment again (C).

librdkafka's heartbeat after a request that timed out does not contain its partitions, and Apache Kafka then sends none.
Here the first heartbeat on another connection is answered with the whole assignment.
"""

from __future__ import annotations

import pytest

from pykbroker.coordinator.group.consumer.consumer_member import MemberState
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolAssignment
from tests.coordinator.group.consumers import ConsumerBench, Partitions, embedded, given, settings
from tests.coordinator.group.harness import Refused, classic_groups


@pytest.fixture
def bench() -> ConsumerBench:
    bench = ConsumerBench(settings())
    bench.create("t", partitions=4)
    return bench


def everything(count: int = 4) -> Partitions:
    return {("t", number) for number in range(count)}


def epoch_of(bench: ConsumerBench, member: str) -> int:
    return bench.group().members[member].epoch


def beat(bench: ConsumerBench, member: str, connection: int | None, owned: Partitions | None = None) -> object:
    """Send a heartbeat without changes, and return the assignment of the answer."""
    return given(bench.beat(member, epoch_of(bench, member), connection=connection, owned=owned))


def two_members(bench: ConsumerBench) -> Partitions:
    """Let the first member give up two of its partitions, and return the ones that it keeps."""
    bench.enter("m1", connection=1)
    bench.enter("m2", connection=2)
    kept = beat(bench, "m1", 1)
    assert isinstance(kept, set)
    assert len(kept) == 2
    assert bench.group().members["m1"].state is MemberState.UNREVOKED_PARTITIONS
    return kept


def test_c_a_lost_answer_that_revokes_is_given_again_on_another_connection(bench: ConsumerBench) -> None:
    kept = two_members(bench)
    # Its client never got that, and its next heartbeat does not contain its partitions.
    assert beat(bench, "m1", 11) == kept
    assert beat(bench, "m1", 11) is None, "once is enough"
    beat(bench, "m1", 11, owned=kept)
    assert bench.group().members["m1"].state is MemberState.STABLE
    assert beat(bench, "m2", 2) == everything() - kept


def test_c_a_lost_answer_that_grants_is_given_again_on_another_connection(bench: ConsumerBench) -> None:
    kept = two_members(bench)
    beat(bench, "m1", 1, owned=kept)
    assert beat(bench, "m2", 2) == everything() - kept
    assert beat(bench, "m2", 2) is None
    assert beat(bench, "m2", 12) == everything() - kept
    assert beat(bench, "m2", 12) is None


def test_c_a_confirmation_whose_answer_was_lost_changes_nothing(bench: ConsumerBench) -> None:
    """The member repeats its partitions, which the broker knows already."""
    kept = two_members(bench)
    beat(bench, "m1", 1, owned=kept)
    log = len(bench.log)
    assert beat(bench, "m1", 11, owned=kept) == kept
    assert len(bench.log) == log


def test_c_a_revocation_that_was_not_confirmed_is_waited_for_on_another_connection(bench: ConsumerBench) -> None:
    """The answer repeats the partitions that are left. Others get nothing before the member confirms that it
    stopped."""
    kept = two_members(bench)
    for connection in (11, 12, 13):
        assert beat(bench, "m1", connection) == kept
        assert bench.group().members["m1"].state is MemberState.UNREVOKED_PARTITIONS
        assert beat(bench, "m2", 2) is None
    beat(bench, "m1", 13, owned=everything())
    assert bench.group().members["m1"].state is MemberState.UNREVOKED_PARTITIONS


def test_c_on_the_same_connection_nothing_is_repeated(bench: ConsumerBench) -> None:
    """As in Apache Kafka, from the first heartbeat of a new group on."""
    assert given(bench.enter("m1", connection=1)) == everything()
    for _ in range(3):
        assert beat(bench, "m1", 1) is None


def test_c_the_first_heartbeat_at_another_coordinator_is_answered_in_full(bench: ConsumerBench) -> None:
    """The former coordinator may have ended between its record and its answer."""
    bench.enter("m1", connection=1)
    later = bench.restart()
    assert beat(later, "m1", 1) == everything()
    assert beat(later, "m1", 1) is None


def test_c_an_answer_that_could_not_be_written_is_none(bench: ConsumerBench) -> None:
    bench.enter("m1", connection=1)
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    # A change of the host is written as a record.
    answer = bench.beat("m1", epoch_of(bench, "m1"), client="other", connection=11)
    assert answer == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert beat(bench, "m1", 11) == everything()


def test_c_members_that_are_gone_are_forgotten(bench: ConsumerBench) -> None:
    bench.enter("m1", connection=1)
    bench.enter("m2", connection=2)
    bench.beat("m2", -1, connection=2)
    assert bench.group().answered_on == {"m1": 1}
    bench.advance(60_000)
    assert bench.group().answered_on == {}


def test_c_a_member_that_turns_a_classic_group_into_its_own_is_told_once(bench: ConsumerBench) -> None:
    bench.stable(1, protocols={"range": embedded("t")})
    for member in classic_groups(bench.shard)["g"].members.values():
        member.assignment = b"\0\1" + ConsumerProtocolAssignment().encode_bytes(1)
    bench.enter("m2", connection=2)
    beat(bench, "m2", 2)
    assert beat(bench, "m2", 2) is None
    assert bench.group().answered_on == {"m2": 2}


@pytest.mark.parametrize("returns_as", ["m1", "m3"])
def test_c_a_static_member_that_returns_is_told_once(bench: ConsumerBench, returns_as: str) -> None:
    """The request that is answered deletes its records and writes them again. The differential test found it."""
    bench.enter("m1", instance="i", connection=1)
    bench.beat("m1", -2, instance="i", connection=1)
    assert given(bench.enter(returns_as, instance="i", connection=3)) == everything()
    answer = bench.beat(returns_as, epoch_of(bench, returns_as), instance="i", connection=3)
    assert given(answer) is None
    assert bench.group().answered_on == {returns_as: 3}


def test_c_a_new_group_that_could_not_be_written_leaves_nothing(bench: ConsumerBench) -> None:
    bench.refuse_next = ErrorCode.NOT_ENOUGH_REPLICAS
    answer = bench.beat("m1", 0, topics=["t"], owned=set(), rebalance_ms=60_000, connection=1)
    assert answer == Refused(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert (bench.shard.groups, bench.shard._awaiting_record) == ({}, {})
    assert given(bench.enter("m1", connection=1)) == everything()
    assert beat(bench, "m1", 1) is None
