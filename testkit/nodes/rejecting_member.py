"""A member of a share group that rejects records, over one connection and without a group coordinator.

Apache Kafka and pykbroker serve it alike. The state of its share partition is made by requests.
"""

from __future__ import annotations

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages import read_share_group_state as reading
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from pykbroker_wire.primitives import uuid_to_str
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.nodes.nodes import eventually
from testkit.nodes.wire import GROUP as GROUP_CONFIGS
from testkit.nodes.wire import TOPIC as TOPIC_CONFIGS
from testkit.nodes.wire import Wire
from testkit.share_requests import Ack, Acquired, acquired, share_acknowledges, share_fetches

#: delivery states, as they are stored
ACKNOWLEDGED, ARCHIVING, ARCHIVED = 2, 3, 4
_SHARE = 2
_QUEUE = "errors.deadletterqueue.topic.name"
_OFFSET = "__dlq.errors.offset"
_ENABLED = "errors.deadletterqueue.group.enable"


class RejectingMember:
    """A member of `group` that reads partition 0 of a topic from the broker of `wire`, which leads it."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self.wire = wire
        self.group = group
        self.topic = topic
        self.topic_id = wire.metadata(topic).topics[0].topic_id
        self._epoch = 0

    def begin(self, coordinator: Wire | None = None) -> None:
        """Let the group begin at offset 0. `coordinator` is the share coordinator, if it is another broker."""
        asked = self.wire if coordinator is None else coordinator
        find = FindCoordinatorRequest(
            key_type=_SHARE, coordinator_keys=[f"{self.group}:{uuid_to_str(self.topic_id)}:0"]
        )
        eventually("a share coordinator", lambda: asked.call(find).coordinators[0].error_code == ErrorCode.NONE)
        begin = PartitionData(partition=0, state_epoch=1, start_offset=0)
        request = InitializeShareGroupStateRequest(
            group_id=self.group, topics=[InitializeStateData(topic_id=self.topic_id, partitions=[begin])]
        )
        eventually("a state", lambda: asked.call(request).results[0].partitions[0].error_code == ErrorCode.NONE)

    def stored(self, coordinator: Wire | None = None) -> dict[int, int]:
        """Return the stored state of each offset from 0 on that has one. Records before the stored start are
        ARCHIVED here, because the coordinator does not know what they were."""
        asked = self.wire if coordinator is None else coordinator
        # Apache Kafka 4.4 refuses an epoch below 0, and a coordinator refuses one that is too low.
        epoch = self.wire.metadata(self.topic).topics[0].partitions[0].leader_epoch
        topic = reading.ReadStateData(
            topic_id=self.topic_id, partitions=[reading.PartitionData(partition=0, leader_epoch=epoch)]
        )
        answer = asked.call(reading.ReadShareGroupStateRequest(group_id=self.group, topics=[topic]))
        found = answer.results[0].partitions[0]
        assert found.error_code == ErrorCode.NONE, answer
        states = dict.fromkeys(range(found.start_offset), ARCHIVED)
        for each in found.state_batches:
            states |= dict.fromkeys(range(each.first_offset, each.last_offset + 1), each.delivery_state)
        return states

    def is_done(self, after: int, coordinator: Wire | None = None) -> bool:
        """Return True if all records before this offset are accepted or archived, and that is stored."""
        states = self.stored(coordinator)
        return all(states.get(offset) in (ACKNOWLEDGED, ARCHIVED) for offset in range(after))

    def queue(self, topic: str) -> None:
        """Let the group have this dead letter topic, and wait until the broker of the member knows it."""
        _alter(self.wire, GROUP_CONFIGS, self.group, _QUEUE, topic)

    def acquire(self) -> list[Acquired]:
        """Return the ranges of records that the member gets, which may be none."""
        answer = self.wire.call(
            share_fetches(self.topic_id, 0, epoch=self._next(), group_id=self.group, max_wait_ms=2_000)
        )
        return acquired(answer).get(0, [])

    def acknowledge(self, *ranges: Ack) -> None:
        """Acknowledge records. Raises AssertionError if the leader refuses it."""
        answer = self.wire.call(
            share_acknowledges(self.topic_id, {0: list(ranges)}, epoch=self._next(), group_id=self.group)
        )
        assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE, answer

    def _next(self) -> int:
        self._epoch += 1
        return self._epoch - 1


def enable_letters(wire: Wire, topic: str) -> None:
    """Let a topic have dead letters, and wait until the broker of `wire` knows it."""
    # A broker may hear of a new topic later than the controller.
    eventually(f"topic {topic}", lambda: wire.metadata(topic).topics[0].error_code == ErrorCode.NONE)
    _alter(wire, TOPIC_CONFIGS, topic, _ENABLED, "true")


def _alter(wire: Wire, kind: int, name: str, key: str, value: str) -> None:
    wire.alter(kind, name, {key: value})
    eventually(f"{key} of {name}", lambda: wire.describe(kind, name, [key])[key].value == value)


def letter_offsets(wire: Wire, topic: str) -> list[int]:
    """Return the offsets of the records whose letters are in partition 0 of a topic. Other records do not count."""
    data = bytes(wire.fetch(topic, 0).records or b"")
    headers = [
        dict(letter.headers)
        for position, header in iter_batches(data)
        for letter in iter_records(data, position, header)
    ]
    return [int(bytes(each[_OFFSET] or b"")) for each in headers if _OFFSET in each]
