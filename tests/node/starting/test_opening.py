"""Requests that name many logs that were not used since the start keep their order on real connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykbroker.storage.opening import OPENED_PER_TURN, Opener
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testkit.nodes.wire import Wire, batch
from tests.node.loops.test_plain_asyncio import Served

PARTITIONS = 8 * OPENED_PER_TURN
VERSION = 12


def produce(*indexes: int, acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=batch(b"%d" % index)) for index in indexes]
    topic = TopicProduceData(name="t", partition_data=data)
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=[topic])


@pytest.mark.slow
def test_a_request_behind_one_that_waits_for_logs_does_not_overtake_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Served(tmp_path)
    with Wire(node.address) as wire:
        wire.create("t", PARTITIONS)
        wire.call(produce(*range(PARTITIONS)), VERSION)
    node.close()
    # Otherwise the node would open them in the meantime.
    monkeypatch.setattr(Opener, "serve", lambda self: None)
    node = Served(tmp_path)
    try:
        with Wire(node.address) as wire:
            last = PARTITIONS - 1
            wire.send(produce(*range(PARTITIONS), acks=0), VERSION)
            second = wire.send(produce(*range(PARTITIONS)), VERSION)
            third = wire.send(produce(last), VERSION)
            answers = [wire.receive(*each) for each in (second, third)]
            found = [one.base_offset for one in answers[0].responses[0].partition_responses]
            assert found == [2] * PARTITIONS
            assert answers[1].responses[0].partition_responses[0].base_offset == 3
            assert wire.values("t", last) == [b"%d" % last] * 4
    finally:
        node.close()
