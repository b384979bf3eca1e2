"""Dead letters on three nodes: the leader of the dead letter topic is killed, and no letter is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.nodes.nodes import eventually
from testkit.nodes.trio import REPLICATED, Trio
from testkit.nodes.wire import Wire, batch
from testkit.share_requests import GROUP, outcomes
from tests.node.processes.test_share_leaders import Member, new_group

pytestmark = pytest.mark.slow

QUEUE = "dlq.t"
SETTINGS = {**REPLICATED, "share.coordinator.state.topic.num.partitions": 1}
REJECT = 3
TOPIC, GROUP_CONFIG = 2, 32
RECORDS = 120
BEFORE = 40


def letters(trio: Trio, node: int) -> set[tuple[str, str]]:
    """Return the offset and the value of each letter."""
    with Wire(trio.address(node)) as wire:
        data = bytes(wire.fetch(QUEUE, 0).records or b"")
    return {
        (str(dict(letter.headers)["__dlq.errors.offset"] or b"", "utf-8"), str(letter.value or b"", "utf-8"))
        for position, header in iter_batches(data)
        for letter in iter_records(data, position, header)
    }


def test_a_killed_leader_of_the_dead_letter_topic_loses_no_letter(tmp_path: Path) -> None:
    with Trio(tmp_path, "static", SETTINGS) as trio:
        trio.serving(1, 2, 3)
        topic_id = new_group(trio, 1, 3)
        trio.create(QUEUE, (2, 3, 1))
        values = {
            "errors.deadletterqueue.topic.name": QUEUE,
            "errors.deadletterqueue.copy.record.enable": "true",
            "share.auto.offset.reset": "earliest",
        }
        level = FeatureUpdateKey(feature="share.version", max_version_level=2, upgrade_type=1)
        with Wire(trio.address(1)) as wire:
            assert wire.call(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[level])).error_code == 0
            wire.alter(GROUP_CONFIG, GROUP, values)
            wire.alter(TOPIC, QUEUE, {"errors.deadletterqueue.group.enable": "true"})
        expected = {(str(offset), str(offset)) for offset in range(RECORDS)}
        with Member(trio, 1, topic_id) as member:
            for offset in range(RECORDS):
                assert member.wire.produce("t", batch(b"%d" % offset)).error_code == ErrorCode.NONE
            acquired = 0
            while acquired < RECORDS:
                acquired += sum(last - first + 1 for first, last, _ in member.fetch(2_000))
            for offset in range(RECORDS):
                if offset == BEFORE:
                    trio.kill(2)
                assert outcomes(member.acknowledge((offset, offset, REJECT))) == {0: ErrorCode.NONE}
            other = eventually("another node leads", lambda: next(iter({*trio.leaders(QUEUE).values()} - {2}), None))
            eventually("all letters are written", lambda: letters(trio, other) >= expected)
        assert letters(trio, other) == expected
