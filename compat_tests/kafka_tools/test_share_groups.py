"""kafka-share-groups: lists, descriptions, resets, deletions of offsets and of groups, and refusals.

The state of the share partitions is written as the leaders of share partitions write it, by WriteShareGroupState. The
members of the group send heartbeats and consume nothing.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from compat_tests.kafka_tools.conftest import Tools, table
from compat_tests.kafka_tools.test_group_admin import COUNT, STEP_MS, fill, moved
from compat_tests.node import Node
from compat_tests.topics import Topics
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import read_share_group_state_summary as summing
from pykbroker_wire.messages import write_share_group_state as writing
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from testkit.clients import NOW_MS, wait_until
from testkit.nodes.wire import Wire

COMMAND = "consumer.group.ShareGroupCommand"
#: The id of a member, as clients make it.
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
LEAVE = -1


class Member:
    """A member of a share group, on a connection of its own."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self._wire = wire
        self._group = group
        self._topic = topic
        self.epoch = 0

    def join(self, partitions: int) -> None:
        """Send heartbeats until the member has this many partitions. The first lookup makes the coordinator's topic."""
        lookup = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group])
        wait_until(lambda: not self._wire.call(lookup).coordinators[0].error_code, "groups have a coordinator")
        assigned = 0

        def has_all() -> bool:
            nonlocal assigned
            answer = self.beat(self.epoch)
            if answer.error_code:
                return False
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                assigned = sum(len(each.partitions) for each in answer.assignment.topic_partitions)
            return assigned == partitions

        wait_until(has_all, f"the member of {self._group} has {partitions} partitions")

    def leave(self) -> None:
        answer = self.beat(LEAVE)
        assert answer.error_code == ErrorCode.NONE, answer

    def beat(self, epoch: int) -> Any:
        return self._wire.call(
            ShareGroupHeartbeatRequest(
                group_id=self._group, member_id=MEMBER, member_epoch=epoch, subscribed_topic_names=[self._topic]
            )
        )


def write_state(wire: Wire, group: str, topic: str, *, start: int, acknowledged: tuple[int, int]) -> None:
    """Write the state of partition 0 as its leader would: a new start, and records after it that were acknowledged."""
    topic_id = wire.metadata(topic).topics[0].topic_id
    asked = [
        summing.ReadStateSummaryData(
            topic_id=topic_id, partitions=[summing.PartitionData(partition=0, leader_epoch=-1)]
        )
    ]
    summary = wire.call(summing.ReadShareGroupStateSummaryRequest(group_id=group, topics=asked))
    (state,) = summary.results[0].partitions
    assert state.error_code == ErrorCode.NONE, state
    first, last = acknowledged
    batch = writing.StateBatch(first_offset=first, last_offset=last, delivery_state=2, delivery_count=1)
    data = writing.PartitionData(
        partition=0,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=start,
        delivery_complete_count=last - first + 1,
        state_batches=[batch],
    )
    topics = [writing.WriteStateData(topic_id=topic_id, partitions=[data])]
    written = wire.call(writing.WriteShareGroupStateRequest(group_id=group, topics=topics))
    assert written.results[0].partitions[0].error_code == ErrorCode.NONE, written


def offsets(tools: Tools, group: str) -> dict[int, tuple[str, str]]:
    """Return start offset and lag of each partition, as the tool prints them."""
    rows = table(tools.run(COMMAND, "--describe", "--offsets", "--group", group))
    return {int(row["PARTITION"]): (row["START-OFFSET"], row["LAG"]) for row in rows if row["GROUP"] == group}


def reset(tools: Tools, group: str, *how: str) -> dict[int, int]:
    found = moved(tools.run(COMMAND, "--reset-offsets", "--group", group, *how))
    return {partition: offset for (_, _, partition), offset in found.items()}


def test_a_group_with_a_member_is_listed_and_described(tools: Tools, topics: Topics, broker: Node) -> None:
    topic = topics.create(partitions=2)
    group = f"sharing-{topic}"
    with Wire(broker.bootstrap) as wire:
        member = Member(wire, group, topic)
        member.join(2)
        assert group in tools.run(COMMAND, "--list").split()
        states = table(tools.run(COMMAND, "--list", "--state", "stable"))
        assert {"GROUP": group, "STATE": "Stable"} in states

        (row,) = table(tools.run(COMMAND, "--describe", "--members", "--verbose", "--group", group))
        assert (row["CONSUMER-ID"], row["#PARTITIONS"], row["ASSIGNMENT"]) == (MEMBER, "2", f"{topic}:0,1")
        assert row["MEMBER-EPOCH"] == str(member.epoch)
        said = tools.run(COMMAND, "--describe", "--state", "--group", group)
        assert re.search(rf"{group} .*:\d+ +\(\d+\) +Stable +1\s", said), said
        # Nothing was delivered yet, so no start offset is known.
        assert offsets(tools, group) == {0: ("-", "-"), 1: ("-", "-")}

        assert "is not empty" in tools.fail(
            COMMAND, "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
        )
        assert "is not EMPTY" in tools.run(COMMAND, "--delete", "--group", group)
        refused = tools.run(COMMAND, "--delete-offsets", "--group", group, "--topic", topic)
        assert re.search(rf"{topic} +Error: ", refused), refused
        assert member.beat(member.epoch).error_code == ErrorCode.NONE, "the session has ended"
        member.leave()


def test_offsets_are_reset_and_deleted(tools: Tools, topics: Topics, broker: Node) -> None:
    topic, other = topics.create(partitions=2), topics.create()
    fill(broker, topic)
    group = f"sharing-{topic}"
    at = datetime.fromtimestamp((NOW_MS + 3.5 * STEP_MS) / 1000, UTC)
    # The first of them creates the group.
    assert reset(tools, group, "--topic", topic, "--to-earliest", "--execute") == {0: 0, 1: 0}
    assert reset(tools, group, "--topic", topic, "--to-latest", "--dry-run") == {0: COUNT, 1: COUNT}
    assert offsets(tools, group) == {0: ("0", str(COUNT)), 1: ("0", str(COUNT))}
    with Wire(broker.bootstrap) as wire:
        write_state(wire, group, topic, start=4, acknowledged=(5, 6))
    assert offsets(tools, group) == {0: ("4", str(COUNT - 4 - 2)), 1: ("0", str(COUNT))}
    assert reset(tools, group, "--all-topics", "--to-datetime", f"{at:%Y-%m-%dT%H:%M:%S}.000", "--execute") == {
        0: 4,
        1: 4,
    }
    assert offsets(tools, group) == {0: ("4", "6"), 1: ("4", "6")}
    assert reset(tools, group, "--topic", f"{topic}:1", "--to-latest", "--execute") == {1: COUNT}
    assert offsets(tools, group) == {0: ("4", "6"), 1: (str(COUNT), "0")}

    said = tools.run(COMMAND, "--delete-offsets", "--group", group, "--topic", topic, "--topic", other)
    assert re.search(rf"{topic} +Successful", said), said
    assert re.search(rf"{other} +Error: ", said), said
    assert "has no offset information" in tools.run(COMMAND, "--describe", "--offsets", "--group", group)

    assert "was successful" in tools.run(COMMAND, "--delete", "--group", group)
    assert group not in tools.run(COMMAND, "--list").split()
    assert "is not a share group" in tools.run(COMMAND, "--delete", "--group", group)
