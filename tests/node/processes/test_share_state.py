"""The state of share partitions on three nodes: its coordinator is killed, and another node has the same state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import initialize_share_group_state as beginning
from pykbroker_wire.messages import read_share_group_state as reading
from pykbroker_wire.messages import write_share_group_state as writing
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.primitives import uuid_to_str
from testkit.nodes.nodes import eventually
from testkit.nodes.trio import REPLICATED, Trio
from testkit.nodes.wire import Wire

pytestmark = pytest.mark.slow

SHARE = 2
GROUP = "group"
SETTINGS = {
    **REPLICATED,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.snapshot.update.records.per.snapshot": 3,
    "share.coordinator.state.topic.prune.interval.ms": 300,
}
NOT_YET = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def coordinator(trio: Trio, key: str, *, but: int | None = None) -> int:
    """Return the node that all living nodes return."""
    request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])

    def look() -> int | None:
        found = set()
        for _, wire in trio.wires():
            answer = wire.call(request).coordinators[0]
            found.add(-1 if answer.error_code else answer.node_id)
        return found.pop() if len(found) == 1 and not found & {-1, but} else None

    return eventually("all name the same share coordinator", look)


def ask(trio: Trio, node: int, request: Any) -> Any:
    """Return the result for the one share partition of a request, once the coordinator is there."""

    def look() -> Any:
        with Wire(trio.address(node)) as wire:
            found = wire.call(request).results[0].partitions[0]
        return None if found.error_code in NOT_YET else found

    return eventually("the share coordinator answers", look)


def test_a_killed_coordinator_loses_nothing(tmp_path: Path) -> None:
    with Trio(tmp_path, "static", SETTINGS) as trio:
        trio.serving(1, 2, 3)
        trio.create("t", (1, 2, 3))
        with Wire(trio.address(1)) as wire:
            topic_id = wire.metadata("t").topics[0].topic_id
        key = f"{GROUP}:{uuid_to_str(topic_id)}:0"
        node = coordinator(trio, key)
        first = beginning.PartitionData(partition=0, state_epoch=1, start_offset=0)
        begin = beginning.InitializeShareGroupStateRequest(
            group_id=GROUP, topics=[beginning.InitializeStateData(topic_id=topic_id, partitions=[first])]
        )
        assert ask(trio, node, begin).error_code == ErrorCode.NONE

        def read(node: int) -> tuple[int, int, list[tuple[int, int, int, int]]]:
            data = reading.PartitionData(partition=0, leader_epoch=0)
            found = ask(
                trio,
                node,
                reading.ReadShareGroupStateRequest(
                    group_id=GROUP, topics=[reading.ReadStateData(topic_id=topic_id, partitions=[data])]
                ),
            )
            assert found.error_code == ErrorCode.NONE, found
            return (
                found.state_epoch,
                found.start_offset,
                [
                    (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                    for each in found.state_batches
                ],
            )

        def write(node: int, offset: int) -> None:
            """Acknowledge every second offset, so that the start stays."""
            state = writing.StateBatch(first_offset=offset, last_offset=offset, delivery_state=2, delivery_count=1)
            data = writing.PartitionData(
                partition=0, state_epoch=1, leader_epoch=0, start_offset=0, state_batches=[state]
            )
            request = writing.WriteShareGroupStateRequest(
                group_id=GROUP, topics=[writing.WriteStateData(topic_id=topic_id, partitions=[data])]
            )
            assert ask(trio, node, request).error_code == ErrorCode.NONE

        written: list[tuple[int, int, int, int]] = []
        for round_ in range(2):
            for offset in range(20 * round_ + 1, 20 * round_ + 21, 2):
                write(node, offset)
                written.append((offset, offset, 2, 1))
            assert read(node) == (1, 0, sorted(written))
            trio.in_sync("__share_group_state")
            trio.kill(node)
            other = coordinator(trio, key, but=node)
            assert read(other) == (1, 0, sorted(written))
            write(other, 1001 + 2 * round_)
            written.append((1001 + 2 * round_, 1001 + 2 * round_, 2, 1))
            trio.start(node).ready(60)
            trio.in_sync("__share_group_state")
            node = other
        assert read(node) == (1, 0, sorted(written))
        assert not trio.complaints()
