"""Leaders of share partitions on three nodes are killed and moved, and their group loses no record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import initialize_share_group_state as beginning
from pykbroker_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import eventually
from testkit.nodes.trio import REPLICATED, Trio
from testkit.nodes.wire import Wire, batch
from testkit.share_requests import (
    ACCEPT,
    GROUP,
    RELEASE,
    Ack,
    Acquired,
    acquired,
    outcomes,
    share_acknowledges,
    share_fetches,
)

pytestmark = pytest.mark.slow

SHARE = 2
SETTINGS = {**REPLICATED, "share.coordinator.state.topic.num.partitions": 1}
NONE = ErrorCode.NONE


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    with Trio(tmp_path, "static", SETTINGS) as trio:
        trio.serving(1, 2, 3)
        yield trio


def new_group(trio: Trio, *replicas: int) -> bytes:
    """Create the topic `t`, and initialise its share partition for the group without a start, as a group coordinator
    does. Return the topic's id."""
    trio.create("t", replicas)
    with Wire(trio.address(1)) as wire:
        topic_id: bytes = wire.metadata("t").topics[0].topic_id
    key = f"{GROUP}:{uuid_to_str(topic_id)}:0"
    data = beginning.PartitionData(partition=0, state_epoch=1, start_offset=-1)
    begin = beginning.InitializeShareGroupStateRequest(
        group_id=GROUP, topics=[beginning.InitializeStateData(topic_id=topic_id, partitions=[data])]
    )

    def look() -> bool:
        with Wire(trio.address(1)) as wire:
            found = wire.call(FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])).coordinators[0]
        if found.error_code:
            return False
        with Wire(trio.address(found.node_id)) as wire:
            return ErrorCode(wire.call(begin).results[0].partitions[0].error_code) is NONE

    eventually("the share partition is initialised", look)
    return topic_id


class Member:
    """A member at one node, with a connection and a session of its own."""

    def __init__(self, trio: Trio, node: int, topic_id: bytes, name: str = "m") -> None:
        self.wire = Wire(trio.address(node))
        self._topic_id = topic_id
        self._name = name
        self._epoch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.wire.close()

    def _next(self) -> int:
        self._epoch += 1
        return self._epoch - 1

    def send_fetch(self, max_wait_ms: int) -> tuple[int, int]:
        return self.wire.send(
            share_fetches(self._topic_id, 0, epoch=self._next(), member_id=self._name, max_wait_ms=max_wait_ms)
        )

    def answer(self, max_wait_ms: int = 500) -> Any:
        """Return the answer to a fetch, without an error of the whole."""
        found = self.wire.receive(*self.send_fetch(max_wait_ms))
        assert found.error_code == NONE
        return found

    def fetch(self, max_wait_ms: int = 500) -> list[Acquired]:
        return acquired(self.answer(max_wait_ms)).get(0, [])

    def acknowledge(self, *acks: Ack) -> Any:
        return self.wire.call(
            share_acknowledges(self._topic_id, {0: list(acks)}, epoch=self._next(), member_id=self._name)
        )

    def send(self, *values: bytes) -> None:
        assert self.wire.produce("t", batch(*values)).error_code == NONE


def all_that_comes(trio: Trio, node: int, topic_id: bytes, count: int) -> list[Acquired]:
    """Return what a new member gets at a node, once the node leads and has loaded."""

    def look() -> list[Acquired] | None:
        with Member(trio, node, topic_id, "late") as member:
            found: list[Acquired] = []
            for each in member.answer(2_000).responses[0].partitions:
                if each.error_code:
                    return None
                found = [(one.first_offset, one.last_offset, one.delivery_count) for one in each.acquired_records]
            return found if sum(last - first + 1 for first, last, _ in found) >= count else None

    return eventually(f"node {node} has {count} records for the group", look)


@pytest.mark.parametrize("replicas", [(1, 2, 3), (1,)], ids=["another node leads then", "the same node comes back"])
def test_a_killed_leader_of_a_latest_group_loses_no_record(trio: Trio, replicas: tuple[int, ...]) -> None:
    topic_id = new_group(trio, *replicas)
    with Member(trio, 1, topic_id) as member:
        member.send(b"before")
        eventually("the start of the group is stored", lambda: member.fetch() == [] or None)
        member.send(b"a", b"b", b"c", b"d")
        assert eventually("the records are there", lambda: member.fetch(2_000)) == [(1, 4, 1)]
        assert outcomes(member.acknowledge((1, 1, ACCEPT), (2, 2, RELEASE))) == {0: NONE}
        # The end of the member's connection would release its records.
        trio.kill(1)
    if len(replicas) == 1:
        trio.start(1).ready(60)
        other = 1
    else:
        other = eventually("another node leads", lambda: next(iter({*trio.leaders("t").values()} - {1}), None))
    # A release is stored with its count, and an acquisition is not.
    assert all_that_comes(trio, other, topic_id, 3) == [(2, 2, 2), (3, 4, 1)]
    assert not trio.complaints()


def test_a_moved_leader_sends_its_members_to_the_next(trio: Trio) -> None:
    topic_id = new_group(trio, 1, 2, 3)
    with Member(trio, 1, topic_id) as member, Member(trio, 1, topic_id, "n") as waiting:
        eventually("the start of the group is stored", lambda: member.fetch() == [] or None)
        member.send(b"a", b"b", b"c", b"d")
        assert eventually("the records are there", lambda: member.fetch(2_000)) == [(0, 3, 1)]
        assert outcomes(member.acknowledge((0, 0, ACCEPT))) == {0: NONE}
        began = time.monotonic()
        parked = waiting.send_fetch(60_000)
        move = ReassignablePartition(partition_index=0, replicas=[2, 3])
        topics = [ReassignableTopic(name="t", partitions=[move])]
        with Wire(trio.address(2)) as wire:
            assert wire.call(AlterPartitionReassignmentsRequest(topics=topics)).error_code == NONE
        (answered,) = waiting.wire.receive(*parked).responses[0].partitions
        assert ErrorCode(answered.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answered.current_leader.leader_id in (2, 3)
        assert time.monotonic() - began < 30
        refused = member.acknowledge((1, 1, ACCEPT))
        (partition,) = refused.responses[0].partitions
        assert ErrorCode(partition.error_code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = partition.current_leader.leader_id
        assert leader in (2, 3)
        assert [node.node_id for node in refused.node_endpoints] == [leader]
        # The locks were those of the old leader, so the records come at once.
        assert all_that_comes(trio, leader, topic_id, 3) == [(1, 3, 1)]
    assert not trio.complaints()
