"""Requests of one connection append in the order in which they were sent, whatever a request waits for before that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykbroker.api import delete_records, end_txn, init_producer_id, txn_offset_commit, write_txn_markers
from pykbroker.dispatch.append_order import in_order
from pykbroker.dispatch.context import RequestContext
from pykbroker.dispatch.dispatcher import Dispatcher
from pykbroker.net import connection as connection_module
from pykbroker.net.connection import Connection
from pykbroker.net.connection_home import Limits
from pykbroker.net.listener import Listener
from pykbroker.replica.partition import Partition
from pykbroker_log import validate
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.delete_records import DeleteRecordsRequest
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from pykbroker_wire.messages.write_txn_markers import WriteTxnMarkersRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.nodes.wire import frame_of
from tests.api.broker_half import Half
from tests.net.fakes import FakeTransport, connect, feed
from tests.replica.test_transactions import end as end_transaction
from tests.replica.world import batch, topic_id

VERSION = ProduceRequest.MAX_VERSION
PRODUCER = 7
NONE, PLACE = ErrorCode.NONE, ("t", 0)


class Client:
    """A connection to a broker half, whose transactions are verified when the test allows it."""

    enabled = True

    def __init__(self, replicas: tuple[int, ...] = (1,)) -> None:
        self.half = Half()
        self.partition: Partition = self.half.world.create("t", replicas=replicas)
        self.half.services.verifier = cast(Any, self)
        #: questions to the coordinator
        self.questions: list[asyncio.Future[dict[tuple[str, int], ErrorCode]]] = []
        #: requests that wait for logs
        self.openings: list[asyncio.Future[None]] = []
        listener = Listener(self.half.services.runtime, "PLAINTEXT", Limits(idle_seconds=10.0))
        listener.answer_with(cast(Any, Dispatcher(self.half.services)))
        self.connection: Connection
        self.transport: FakeTransport
        self.connection, self.transport = connect(listener)

    def verify(self, *asked: object, **how: object) -> asyncio.Future[dict[tuple[str, int], ErrorCode]]:
        self.questions.append(self.half.services.runtime.loop.create_future())
        return self.questions[-1]

    def verify_at_once(self, *asked: object, **how: object) -> bool:
        return False

    def opens_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The next request must wait for its logs."""
        opener = self.half.replicas.logs.opener

        def when_open(handles: object) -> asyncio.Future[None] | None:
            monkeypatch.undo()
            self.openings.append(self.half.services.runtime.loop.create_future())
            return self.openings[-1]

        monkeypatch.setattr(opener, "when_open", when_open)

    def frame(self, value: bytes, *, sequence: int = -1, acks: int = -1, is_listed_twice: bool = False) -> bytes:
        """Return a request with a batch; with a sequence number it belongs to a transaction. A request that lists its
        partition twice does not take the short way."""
        fields: dict[str, Any] = {}
        if sequence >= 0:
            fields = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        data = [PartitionProduceData(index=0, records=batch(value, **fields))] * (1 + is_listed_twice)
        topic = TopicProduceData(topic_id=topic_id("t"), partition_data=data)
        request = ProduceRequest(
            transactional_id="x" if fields else None, acks=acks, timeout_ms=1_000, topic_data=[topic]
        )
        return frame_of(request, VERSION, client_id="me")

    def send(self, *frames: bytes) -> None:
        """Send all frames in one piece."""
        feed(self.connection, b"".join(frames))
        self.half.loop.settle()

    def settle(self) -> None:
        self.half.loop.settle()

    @property
    def appended(self) -> list[bytes]:
        log = self.partition.log
        data = log.read(0, 1 << 20, log.log_end_offset, min_one=True).joined()
        return [
            bytes(record.value or b"")
            for position, header in iter_batches(data)
            if not header.is_control
            for record in iter_records(data, position, header)
        ]

    @property
    def answers(self) -> list[ErrorCode]:
        found, data = [], bytes(self.transport.written)
        while data:
            size = 4 + int.from_bytes(data[:4], "big")
            answer: Any = decode_response(0, VERSION, data[4:size])[1]
            found.append(ErrorCode(answer.responses[0].partition_responses[0].error_code))
            data = data[size:]
        return found


@pytest.fixture(autouse=True)
def _frames_are_dead_after_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "POISON_RECEIVED", True)


@pytest.fixture
def client() -> Client:
    return Client()


Wait = Callable[[Client, pytest.MonkeyPatch], list[Callable[[], None]]]


def _verification(client: Client, patch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    return [lambda: client.questions[0].set_result({PLACE: NONE})]


def _opening(client: Client, patch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    client.opens_later(patch)
    return [lambda: client.openings[0].set_result(None)]


def _opening_then_verification(client: Client, patch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    return _opening(client, patch) + _verification(client, patch)


def _verification_twice(client: Client, patch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    def answered_too_late() -> None:
        # The marker of the transaction before removes the guard.
        end_transaction(client.partition, commit=True, pid=PRODUCER)
        client.questions[0].set_result({PLACE: NONE})

    return [answered_too_late, lambda: client.questions[1].set_result({PLACE: NONE})]


def _check_elsewhere(client: Client, patch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """The first batch takes too long to be checked on the loop."""
    under_way: list[tuple[asyncio.Future[Any], Callable[..., Any], tuple[object, ...]]] = []

    def run_blocking(function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        under_way.append((client.half.loop.create_future(), function, args))
        return under_way[-1][0]

    def checked() -> None:
        patch.undo()
        ((future, function, args),) = under_way
        future.set_result(function(*args))

    patch.setattr(validate, "MOST_PLAIN_AT_ONCE", 0)
    patch.setattr(client.half.services.runtime, "run_blocking", run_blocking)
    return [checked]


def _verification_then_check(client: Client, patch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    return _verification(client, patch) + _check_elsewhere(client, patch)


@pytest.mark.parametrize("acks", [-1, 1, 0])
@pytest.mark.parametrize(
    ("wait", "sequence"),
    [
        (_verification, 0),
        (_opening, -1),
        (_opening_then_verification, 0),
        (_verification_twice, 0),
        (_check_elsewhere, -1),
        (_verification_then_check, 0),
    ],
    ids=[
        "verification",
        "logs that are opened",
        "logs, then verification",
        "a guard that went away",
        "a large batch",
        "verification, then a large batch",
    ],
)
def test_later_requests_append_after_one_that_waits(
    client: Client, monkeypatch: pytest.MonkeyPatch, wait: Wait, sequence: int, acks: int
) -> None:
    steps = wait(client, monkeypatch)
    first = client.frame(b"first", sequence=sequence, acks=acks, is_listed_twice=True)
    client.send(first, client.frame(b"second"))
    client.send(client.frame(b"third", acks=acks))
    for step in steps:
        assert client.appended == []
        assert not client.transport.reading
        step()
        client.settle()
    assert client.appended == [b"first", b"second", b"third"]
    assert client.transport.reading
    assert client.answers == [NONE] * (1 if acks == 0 else 3)


def test_batches_of_a_transaction_that_were_sent_together_are_one_question(client: Client) -> None:
    client.send(*(client.frame(b"%d" % number, sequence=number) for number in range(5)))
    assert len(client.questions) == 1
    client.questions[0].set_result({PLACE: NONE})
    client.settle()
    assert client.appended == [b"%d" % number for number in range(5)]
    assert client.answers == [NONE] * 5
    assert len(client.questions) == 1


def test_a_guard_that_goes_away_each_time_is_refused_with_an_error_that_passes(client: Client) -> None:
    client.send(client.frame(b"first", sequence=0))
    answered = 0
    while answered < len(client.questions):
        end_transaction(client.partition, commit=True, pid=PRODUCER)
        client.questions[answered].set_result({PLACE: NONE})
        answered += 1
        client.settle()
        assert answered < 100
    assert client.answers == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert client.transport.reading


def test_a_request_whose_verification_fails_lets_the_next_go_on(client: Client) -> None:
    client.send(client.frame(b"first", sequence=0), client.frame(b"second"))
    client.questions[0].set_result({PLACE: ErrorCode.NETWORK_EXCEPTION})
    client.settle()
    assert client.appended == [b"second"]
    assert client.answers == [ErrorCode.NOT_ENOUGH_REPLICAS, NONE]


@pytest.mark.parametrize("ends", ["cancelled", "a bug"])
def test_a_wait_that_ends_badly_ends_the_connection_and_nothing_overtakes(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    """The node stops, or the step after the wait raises."""
    client.opens_later(monkeypatch)
    client.send(client.frame(b"first", is_listed_twice=True), client.frame(b"second"))
    if ends == "cancelled":
        client.openings[0].cancel()
    else:
        client.openings[0].set_exception(ZeroDivisionError())
    with caplog.at_level(logging.CRITICAL):
        client.settle()
    assert client.appended == []
    assert client.transport.closed


def test_a_client_that_leaves_takes_back_only_what_was_not_begun(client: Client) -> None:
    client.send(client.frame(b"first", sequence=0), client.frame(b"second"))
    client.connection.connection_lost(None)
    client.questions[0].set_result({PLACE: NONE})
    client.settle()
    assert client.appended == [b"first"]


def test_a_connection_that_waits_is_not_idle(client: Client) -> None:
    client.send(client.frame(b"first", sequence=0, acks=0))
    client.connection.tidy(client.half.loop.now + 1_000)
    assert not client.transport.closed
    client.questions[0].set_result({PLACE: NONE})
    client.settle()
    client.connection.tidy(client.half.loop.now + 1_000)
    assert client.transport.closed


def test_a_connection_that_is_muted_and_owes_no_answer_is_not_idle(client: Client) -> None:
    client.connection.mute()
    client.connection.tidy(client.half.loop.now + 1_000)
    assert not client.transport.closed


def test_waiting_for_acknowledgements_holds_nothing_up() -> None:
    client = Client(replicas=(1, 2))
    for number in range(50):
        client.send(client.frame(b"%d" % number))
    assert client.appended == [b"%d" % number for number in range(50)]
    assert client.answers == []
    assert client.transport.reading


@pytest.mark.parametrize("what", ["moves", "offline"])
def test_a_log_that_cannot_be_used_is_refused_at_once_and_holds_nothing_up(client: Client, what: str) -> None:
    """A request does not wait for a log whose records are being cut off or moved; clients try again."""
    handle = client.partition.handle
    if what == "offline":
        handle.take_offline()
        code = ErrorCode.KAFKA_STORAGE_ERROR
    else:
        handle.begin_truncation()
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    client.send(client.frame(b"first", sequence=0), client.frame(b"second"))
    assert client.answers == [code, code]
    assert client.transport.reading


class Waits:
    """A service that passes its wait to `when_done`, which is the last positional argument."""

    enabled = True

    def __init__(self, loop: Any) -> None:
        self.future: asyncio.Future[None] = loop.create_future()
        self.answer: asyncio.Future[Any] = loop.create_future()
        self.went_on = False

    def wait(self, *asked: Any) -> asyncio.Future[Any]:
        asked[-1](self.future, self._go_on)
        return self.answer

    commit_in_transaction = init_producer_id = end = wait

    def _go_on(self, done: asyncio.Future[None]) -> None:
        self.went_on = True


OFFSETS = TxnOffsetCommitRequest(
    transactional_id="x",
    group_id="g",
    topics=[
        TxnOffsetCommitRequestTopic(
            topic_id=topic_id("t"), partitions=[TxnOffsetCommitRequestPartition(partition_index=0)]
        ),
    ],
)


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (txn_offset_commit, OFFSETS),
        (init_producer_id, InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)),
        (end_txn, EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)),
    ],
    ids=["TxnOffsetCommit", "InitProducerId", "EndTxn"],
)
def test_coordinators_wait_in_the_order_of_the_connection(client: Client, handler: Any, request_: Any) -> None:
    service = Waits(client.half.services.runtime.loop)
    client.half.services.groups = client.half.services.transactions = cast(Any, service)
    handler.handle(_context(client, request_), request_)
    client.send(client.frame(b"later"))
    assert client.appended == []
    service.future.set_result(None)
    client.settle()
    assert service.went_on
    assert client.appended == [b"later"]


@pytest.mark.parametrize(
    ("handler", "request_"),
    [(write_txn_markers, WriteTxnMarkersRequest()), (delete_records, DeleteRecordsRequest())],
    ids=["WriteTxnMarkers", "DeleteRecords"],
)
def test_what_changes_logs_waits_for_them_in_the_order_of_the_connection(
    client: Client, monkeypatch: pytest.MonkeyPatch, handler: Any, request_: Any
) -> None:
    client.opens_later(monkeypatch)
    handler.handle(_context(client, request_), request_)
    client.send(client.frame(b"later"))
    assert client.appended == []
    client.openings[0].set_result(None)
    client.settle()
    assert client.appended == [b"later"]


def _context(client: Client, request: Any) -> RequestContext[Any]:
    return RequestContext(client.connection, client.half.services, request.API_KEY, request.MAX_VERSION, 0, "me", 0)


def test_a_step_that_waits_again_keeps_the_connection_muted(client: Client) -> None:
    loop = client.half.services.runtime.loop
    first: asyncio.Future[None] = loop.create_future()
    second: asyncio.Future[None] = loop.create_future()
    when_done = in_order(_context(client, DeleteRecordsRequest()))
    when_done(first, lambda done: when_done(second, lambda done: None))
    first.set_result(None)
    client.send(client.frame(b"later"))
    assert client.appended == []
    second.cancel()
    client.settle()
    assert client.appended == [b"later"]


def test_a_request_without_a_connection_holds_nothing_up(client: Client) -> None:
    """The client is in an Envelope, or is this process itself."""
    context = SimpleNamespace(peer=object())
    future: asyncio.Future[int] = client.half.services.runtime.loop.create_future()
    found: list[int] = []
    in_order(cast(Any, context))(future, lambda done: found.append(done.result()))
    future.set_result(1)
    client.settle()
    assert found == [1]
