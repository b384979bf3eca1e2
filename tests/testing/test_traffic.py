"""The recorded requests of clients; and a node that no test watches serves as before."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from kafka import KafkaProducer

import pykbroker
from pykbroker.config.load import development_profile, load
from pykbroker.dispatch.dispatcher import Dispatcher
from pykbroker.node.node import Node
from pykbroker.node.start_options import StartOptions
from pykbroker.runtime import OsRuntime
from pykbroker.testing import traffic as traffic_module
from pykbroker.testing.node_thread import NodeThread
from pykbroker.testing.traffic import MOST_BYTES, RecordedRequest, Traffic
from pykbroker.testing.watched_dispatcher import WatchedDispatcher
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.produce import ProduceRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.nodes.wire import Wire


@pytest.mark.slow
def test_what_a_producer_asked() -> None:
    with pykbroker.Broker(record=True) as broker:
        with closing(KafkaProducer(bootstrap_servers=broker.bootstrap_servers, client_id="shop")) as producer:
            producer.send("orders", b"one", partition=0).get(timeout=60)
            broker.faults.add("Produce", topic="orders", error="REQUEST_TIMED_OUT", times=1)
            producer.send("orders", b"two", partition=0).get(timeout=60)
        first, failed, again = broker.requests("Produce", topic="orders", client_id="shop", node=1)
        assert (first.api, first.client_id, first.node, first.topics) == ("Produce", "shop", 1, ("orders",))
        assert first.version <= 13
        assert [one.errors for one in (first, failed, again)] == [(), (ErrorCode.REQUEST_TIMED_OUT,), ()]
        assert all(one.took_ms is not None and one.arrival_ms >= first.arrival_ms for one in (first, failed, again))
        # The request is a copy: its records are those that were sent, long after its frame was overwritten.
        asked = cast(ProduceRequest, first.request)
        records = asked.topic_data[0].partition_data[0].records
        assert records is not None
        ((position, header),) = iter_batches(records)
        assert [bytes(record.value or b"") for record in iter_records(records, position, header)] == [b"one"]
        assert broker.requests("Metadata", topic="orders")
        assert broker.requests("produce") == broker.requests(0) == [first, failed, again]
        with pytest.raises(ValueError, match="there is no API 'Produces'"):
            broker.requests("Produces")
        assert broker.requests("Produce", topic="other") == []
        assert broker.requests("Produce", node=2) == []


def test_a_request_without_an_answer_has_no_errors_yet() -> None:
    with pykbroker.Broker(record=True) as broker, Wire(broker.bootstrap_servers, timeout=60) as wire:
        fault = broker.faults.add("Metadata", drop=True)
        wire.send(MetadataRequest(topics=[]))
        fault.wait_for()
        (one,) = broker.requests("Metadata")
        assert (one.errors, one.took_ms) == (None, None)


def test_a_block_records_what_happens_in_it() -> None:
    with pykbroker.Broker() as broker, Wire(broker.bootstrap_servers, timeout=60) as wire:
        with pytest.raises(RuntimeError, match="record=True"):
            broker.requests()
        for expected in (2, 1):
            wire.call(MetadataRequest(topics=[]))
            with broker.recording() as traffic:
                for _ in range(expected):
                    wire.call(MetadataRequest(topics=[]))
            wire.call(MetadataRequest(topics=[]))
            assert [one.api for one in traffic.requests()] == ["Metadata"] * expected
            assert broker.requests() == traffic.requests()


def recorded(size: int) -> RecordedRequest:
    return RecordedRequest("Metadata", 13, "test", 1, (), MetadataRequest(), 0, size)


def test_the_ring_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = Traffic()
    traffic.start()
    for _ in range(3):
        traffic.add(recorded(MOST_BYTES // 2))
    assert len(traffic.requests()) == 2
    traffic.add(recorded(2 * MOST_BYTES))
    assert len(traffic.requests()) == 1
    monkeypatch.setattr(traffic_module, "MOST_REQUESTS", 5)
    for _ in range(7):
        traffic.add(recorded(1))
    assert len(traffic.requests()) == 5


def dispatcher_of(node: Node | None) -> type[object]:
    assert node is not None
    return type(next(one for one in node.listeners if one.name == "PLAINTEXT").dispatch)


def test_a_node_that_no_test_watches_has_the_plain_dispatcher(tmp_path: Path) -> None:
    """In `pykbroker start` no request passes through the testing kit."""
    run = NodeThread(load(development_profile(str(tmp_path), 0)), OsRuntime, options=StartOptions(may_format=True))
    run.wait_until_ready()
    assert dispatcher_of(run.node) is Dispatcher
    run.stop()
    with pykbroker.Broker() as broker:
        assert dispatcher_of(broker._node) is WatchedDispatcher
