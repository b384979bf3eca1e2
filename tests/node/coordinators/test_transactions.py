# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Transactions on a whole node: producers of both versions, the view of readers, restarts, and the keys with
effects."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from pykbroker_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.end_txn import EndTxnRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.init_producer_id import InitProducerIdRequest
from pykbroker_wire.messages.list_transactions import ListTransactionsRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from pykbroker_wire.records.batch import build_batch, iter_batches
from pykbroker_wire.records.record import iter_records
from testkit.acting import acts
from testkit.nodes.sim import Sim, playing
from testkit.simulated_clients import Client

T = TypeVar("T")
Play = Callable[..., Any]
STATE = "__transaction_state"
ONE = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing(ONE) as run:
        yield run


class Producer:
    """A simple transactional producer, which repeats only the first requests until the coordinator is ready."""

    def __init__(self, sim: Sim, transactional_id: str = "x", version: int = 2, timeout_ms: int = 60_000) -> None:
        self.sim = sim
        self.transactional_id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def call(self, request: Any, version: int) -> Any:
        return await self.sim._connection.send(request, 30_000, version)

    async def init(self) -> Producer:
        while (
            (await self.sim.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[self.transactional_id])))
            .coordinators[0]
            .error_code
        ):
            await asyncio.sleep(0.1)
        while (answer := await self.try_init()).error_code in BUSY:
            await asyncio.sleep(0.05)
        assert answer.error_code == ErrorCode.NONE, answer
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences = {}
        return self

    async def try_init(self) -> Any:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms)
        return await self.call(request, 5 if self.version == 2 else 4)

    async def add(self, *partitions: tuple[str, int]) -> list[int]:
        """Add partitions, as clients do before they write, up to transaction.version 1."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions
            ],
        )
        answer = await self.call(request, 3)
        return [
            result.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        ]

    def batch(self, topic: str, index: int, *values: bytes) -> bytes:
        first = self.sequences.get((topic, index), 0)
        self.sequences[topic, index] = first + len(values)
        return build_batch(
            [(None, value, (), self.sim.world.now_ms()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=first,
            transactional=True,
        )

    async def send(self, topic: str, *values: bytes, index: int = 0, version: int | None = None, acks: int = -1) -> Any:
        version = version or (12 if self.version == 2 else 11)
        asked = [PartitionProduceData(index=index, records=self.batch(topic, index, *values))]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=acks,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=topic, partition_data=asked)],
        )
        return (await self.call(request, version)).responses[0].partition_responses[0]

    async def end(self, commit: bool) -> int:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        answer = await self.call(request, 5 if self.version == 2 else 4)
        if self.version == 2 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        code: int = answer.error_code
        return code


async def values(sim: Sim, topic: str, isolation_level: int = 1) -> list[bytes]:
    """Return the values that a consumer reads: it drops records that the response lists as aborted."""
    answer = (await sim.fetch(topic, isolation_level=isolation_level)).responses[0].partitions[0]
    aborted = sorted((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ())
    open_aborts: set[int] = set()
    found: list[bytes] = []
    data = bytes(answer.records or b"")
    for position, header in iter_batches(data):
        while aborted and aborted[0][0] <= header.last_offset:
            open_aborts.add(aborted.pop(0)[1])
        if header.is_control:
            open_aborts.discard(header.producer_id)
        elif header.producer_id not in open_aborts or not header.is_transactional:
            found += [bytes(record.value or b"") for record in iter_records(data, position, header)]
    return found


async def state_of(sim: Sim, transactional_id: str = "x") -> Any:
    return (await sim.call(DescribeTransactionsRequest(transactional_ids=[transactional_id]))).transaction_states[0]


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_committed_is_read_and_what_is_aborted_is_not(play: Play, version: int) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t", partitions=2)
        producer = await Producer(sim, version=version).init()
        for number in range(6):
            if version == 1:
                assert await producer.add(("t", 0), ("t", 1)) == [0, 0]
            for index in range(2):
                answer = await producer.send("t", b"%d" % number, index=index)
                assert answer.error_code == ErrorCode.NONE, answer
            await sim.send("t", b"plain %d" % number)
            # Records after an open transaction are not stable either.
            assert b"plain %d" % number not in await values(sim, "t")
            assert await producer.end(number % 2 == 0) == ErrorCode.NONE
            assert (await state_of(sim)).transaction_state == ("CompleteCommit" if number % 2 == 0 else "CompleteAbort")
        plain = [b"plain %d" % number for number in range(6)]
        committed = await values(sim, "t")
        assert sorted(committed) == sorted([b"0", b"2", b"4", *plain])
        assert len(await values(sim, "t", 0)) == 12
        assert producer.epoch == (6 if version == 2 else 0)

    play(scenario)


def test_open_and_decided_transactions_outlive_the_node(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        producer = await Producer(sim).init()
        await producer.send("t", b"first")
        await producer.end(True)
        await producer.send("t", b"second")
        await sim.sim_node.stop()
        await sim.sim_node.start()
        assert (await state_of(sim)).transaction_state == "Ongoing"
        assert await values(sim, "t") == [b"first"]
        # The sequence continues, and the transaction with it.
        assert (await producer.send("t", b"third")).error_code == ErrorCode.NONE
        assert await producer.end(True) == ErrorCode.NONE
        assert await values(sim, "t") == [b"first", b"second", b"third"]
        old = Producer(sim)
        old.producer_id, old.epoch = producer.producer_id, producer.epoch - 1
        assert (await old.send("t", b"zombie")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    play(scenario)


def test_a_new_producer_ends_what_the_old_one_began(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        old = await Producer(sim).init()
        await old.send("t", b"lost")
        assert (await Producer(sim).try_init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        new = await Producer(sim).init()
        assert (new.producer_id, new.epoch) == (old.producer_id, old.epoch + 2)
        assert (await old.send("t", b"zombie")).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await old.end(True) == ErrorCode.PRODUCER_FENCED
        assert (await new.send("t", b"kept")).error_code == ErrorCode.NONE
        assert await new.end(True) == ErrorCode.NONE
        assert await values(sim, "t") == [b"kept"]

    play(scenario)


def test_records_that_wait_for_the_coordinator_are_kept_as_they_were_sent(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        topic_id = await sim.topic_id("t")
        producer = await Producer(sim).init()
        image = sim.node.loader.image.topics.by_name[STATE].partitions[0]
        state = sim.node.services.replicas.get(STATE, 0)
        # A second replica that never fetches makes the coordinator's responses wait.
        state.update(image._replace(replicas=(1, 2), isr=(1, 2), partition_epoch=image.partition_epoch + 1))
        sending = asyncio.ensure_future(producer.send("t", b"a" * 10_000))
        late = asyncio.ensure_future(producer.send("t", b"b", acks=1))
        await asyncio.sleep(0.5)
        assert not sending.done()
        # Other requests have gone through the receive buffer in the meantime.
        other = Client(sim.world, "other")
        for number in range(5):
            data = PartitionProduceData(records=sim.batch(b"%d" % number * 20_000))
            topic = TopicProduceData(topic_id=topic_id, partition_data=[data])
            await other.call(ProduceRequest(transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=[topic]))
        state.update(image._replace(partition_epoch=image.partition_epoch + 2))
        assert (await sending).error_code == ErrorCode.NONE
        assert (await late).error_code == ErrorCode.NONE
        assert await producer.end(True) == ErrorCode.NONE
        found = await values(sim, "t")
        assert found[5:] == [b"a" * 10_000, b"b"]

    play(scenario)


def test_a_hanging_transaction_is_ended_by_hand(play: Play) -> None:
    """KIP-664: `kafka-transactions abort` writes the marker itself."""

    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        producer = await Producer(sim, version=1).init()
        await producer.add(("t", 0))
        await producer.send("t", b"hangs")
        await sim.send("t", b"behind")
        assert await values(sim, "t") == []
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0, 7])],
            coordinator_epoch=0,
        )
        answer = await sim.call(WriteTxnMarkersRequest(markers=[marker]))
        codes = {each.partition_index: each.error_code for each in answer.markers[0].topics[0].partitions}
        assert codes == {0: ErrorCode.NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await values(sim, "t") == [b"behind"]

    play(scenario)


def test_offsets_belong_to_a_transaction(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        producer = await Producer(sim, version=1).init()
        while (await sim.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))).coordinators[0].error_code:
            await asyncio.sleep(0.1)
        request = AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
        )
        assert (await sim.call(request)).error_code == ErrorCode.NONE
        found = await state_of(sim)
        assert [(topic.topic, topic.partitions) for topic in found.topics] == [("__consumer_offsets", [0])]
        assert await producer.end(True) == ErrorCode.NONE
        assert [header.is_control for header in await sim.stored("__consumer_offsets")] == [True]

    play(scenario)


def test_transactions_are_listed(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t")
        idle = await Producer(sim, "idle").init()
        busy = await Producer(sim, "busy").init()
        await busy.send("t", b"x")
        await asyncio.sleep(2)

        async def listed(**filters: Any) -> list[str]:
            answer = await sim.call(ListTransactionsRequest(**filters))
            assert answer.error_code == ErrorCode.NONE
            return sorted(each.transactional_id for each in answer.transaction_states)

        assert await listed() == ["busy", "idle"]
        assert await listed(state_filters=["Ongoing", "nonsense"]) == ["busy"]
        assert await listed(producer_id_filters=[idle.producer_id]) == ["idle"]
        assert await listed(duration_filter=1_000, state_filters=["Ongoing"]) == ["busy"]
        assert await listed(duration_filter=3_000, state_filters=["Ongoing"]) == []
        assert await listed(transactional_id_pattern="i.*") == ["idle"]
        refused = await sim.call(ListTransactionsRequest(transactional_id_pattern="("))
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert (await state_of(sim, "nobody")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

    play(scenario)


def test_a_broker_asks_for_many_transactions(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t", partitions=3)
        first, second = await Producer(sim, "a").init(), await Producer(sim, "b").init()

        def asked(producer: Producer, index: int, verify_only: bool) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=producer.transactional_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=[AddPartitionsToTxnTopic(name="t", partitions=[index])],
            )

        answer = await sim.call(
            AddPartitionsToTxnRequest(transactions=[asked(first, 0, False), asked(second, 1, True)])
        )
        codes = {
            result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
            for result in answer.results_by_transaction
        }
        assert codes == {"a": ErrorCode.NONE, "b": ErrorCode.TRANSACTION_ABORTABLE}

    play(scenario)


def test_partitions_of_a_request_that_are_not_all_good(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await sim.create("t", partitions=2)
        producer = await Producer(sim, version=1).init()
        assert await producer.add(("t", 0), ("t", 9), (STATE, 0)) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ]
        # None of it was added, so old clients get an error that they know.
        assert (await producer.send("t", b"x", version=10)).error_code == ErrorCode.INVALID_TXN_STATE
        assert (await producer.send("t", b"x", version=11)).error_code == ErrorCode.TRANSACTION_ABORTABLE

    play(scenario)


# -- keys --------------------------------------------------------------------------------------------------------------


@acts(
    broker=(
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        "transaction.state.log.segment.bytes",
        "transaction.state.log.min.isr",
    )
)
def test_the_transaction_topic(play: Play) -> None:
    async def made(sim: Sim) -> tuple[int, int, int]:
        await Producer(sim).init()
        topic = sim.node.loader.image.topics.by_name[STATE]
        config = sim.node.services.replicas.topic_config(STATE)
        return len(topic.partitions), config.segment_bytes, config.min_insync_replicas

    default = {"transaction.state.log.num.partitions": "50"}
    assert play(made, default) == (50, 104_857_600, 1)
    chosen = {
        "transaction.state.log.num.partitions": "3",
        "transaction.state.log.segment.bytes": "2000000",
    }
    assert play(made, chosen) == (3, 2_000_000, 1)

    async def refused(sim: Sim) -> int:
        asked = FindCoordinatorRequest(key_type=1, coordinator_keys=["x"])
        await sim.call(asked)
        await asyncio.sleep(1)
        code: int = (await sim.call(asked)).coordinators[0].error_code
        return code

    # One broker cannot hold three copies: as in Apache Kafka, clients must try again.
    assert play(refused, {"transaction.state.log.replication.factor": "3"}) == ErrorCode.COORDINATOR_NOT_AVAILABLE

    async def began(sim: Sim, *, lost: bool) -> int:
        while (await sim.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))).coordinators[0].error_code:
            await asyncio.sleep(0.1)
        if lost:
            sim.lose_a_replica(STATE)
        code: int = (await Producer(sim).try_init()).error_code
        return code

    async def unsafe(sim: Sim) -> int:
        return await began(sim, lost=True)

    async def as_safe_as_one_node_can_be(sim: Sim) -> int:
        return await began(sim, lost=False)

    two = {"transaction.state.log.min.isr": "2"}
    assert play(unsafe) == ErrorCode.NONE
    assert play(unsafe, two) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    # The partition has only one replica, so one is enough.
    assert play(as_safe_as_one_node_can_be, two) == ErrorCode.NONE


def test_groups_and_transactions_where_more_replicas_are_asked_for_than_there_are(play: Play) -> None:
    async def whole(sim: Sim) -> list[bytes]:
        await sim.create("t")
        producer = await Producer(sim).init()
        await producer.send("t", b"x")
        await producer.end(commit=True)
        return await values(sim, "t")

    assert play(whole, {"min.insync.replicas": "2", "transaction.state.log.min.isr": "2"}) == [b"x"]


@acts(broker=("transaction.max.timeout.ms",))
def test_the_longest_timeout(play: Play) -> None:
    async def asked(sim: Sim) -> int:
        await Producer(sim, timeout_ms=1_000).init()
        code: int = (await Producer(sim, timeout_ms=20_000).try_init()).error_code
        return code

    assert play(asked) == ErrorCode.NONE
    assert play(asked, {"transaction.max.timeout.ms": "19999"}) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@acts(broker=("transaction.abort.timed.out.transaction.cleanup.interval.ms",))
def test_a_transaction_that_is_open_too_long(play: Play) -> None:
    async def seconds(sim: Sim) -> int:
        await sim.create("t")
        producer = await Producer(sim, timeout_ms=5_000).init()
        await producer.send("t", b"x")
        await sim.send("t", b"behind")
        for second in range(100):
            if await values(sim, "t") == [b"behind"]:
                return second
            await asyncio.sleep(1)
        return 100

    key = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    assert 9 <= play(seconds) <= 21
    assert 5 <= play(seconds, {key: "1000"}) <= 7
    assert 29 <= play(seconds, {key: "30000"}) <= 31


@pytest.mark.slow
@acts(broker=("transactional.id.expiration.ms", "transaction.remove.expired.transaction.cleanup.interval.ms"))
def test_ids_that_nobody_uses(play: Play) -> None:
    async def minutes(sim: Sim) -> int:
        await sim.create("t")
        await Producer(sim, "idle").init()
        busy = await Producer(sim, "busy", timeout_ms=900_000).init()
        await busy.send("t", b"x")
        for minute in range(300):
            if (await state_of(sim, "idle")).error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                # It has an open transaction, so it is in use.
                assert (await state_of(sim, "busy")).error_code == ErrorCode.NONE
                return minute
            await asyncio.sleep(60)
        return 300

    interval = "transaction.remove.expired.transaction.cleanup.interval.ms"
    never = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100000000"}
    assert 60 <= play(minutes, {**never, "transactional.id.expiration.ms": "60000"}) <= 61
    assert 2 <= play(minutes, {**never, "transactional.id.expiration.ms": "60000", interval: "60000"}) <= 3
    assert 20 <= play(minutes, {**never, "transactional.id.expiration.ms": "1200000", interval: "60000"}) <= 22


@acts(broker=("transaction.state.log.load.buffer.size",))
def test_loading_reads_so_much_at_a_time(play: Play) -> None:
    async def reads(sim: Sim) -> int:
        for number in range(30):
            await Producer(sim, f"producer-{number}").init()
        await sim.sim_node.stop()
        counted: list[int] = []
        read = PartitionLog.read

        def counting(log: PartitionLog, offset: int, max_bytes: int, *rest: Any, **fields: Any) -> Any:
            if log.topic == STATE:
                counted.append(offset)
            return read(log, offset, max_bytes, *rest, **fields)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(PartitionLog, "read", counting)
            await sim.sim_node.start()
            while (await state_of(sim, "producer-29")).error_code:
                await asyncio.sleep(0.1)
        return len(counted)

    assert play(reads) == 1
    assert play(reads, {"transaction.state.log.load.buffer.size": "500"}) >= 6


@acts(broker=("add.partitions.to.txn.retry.backoff.ms", "add.partitions.to.txn.retry.backoff.max.ms"))
def test_a_broker_waits_for_the_end_of_the_last_transaction(play: Play) -> None:
    """Between two transactions, while markers are being written, Produce of version 12 asks the coordinator again."""

    async def asked(sim: Sim) -> tuple[int, int, int]:
        await sim.create("t")
        await sim.create("blocked")
        producer = await Producer(sim).init()
        await producer.send("blocked", b"x")
        # Its leader is a broker that never answers, so the marker does not arrive.
        image = sim.node.loader.image.topics.by_name["blocked"].partitions[0]
        sim.node.services.replicas.get("blocked", 0).update(image._replace(leader=2))
        assert await producer.end(True) == ErrorCode.NONE
        service = sim.node.services.transactions
        count = 0
        add = service.add_partitions

        def counting(*args: Any) -> Any:
            nonlocal count
            count += 1
            return add(*args)

        started = sim.world.loop.time()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(service, "add_partitions", counting)
            answer = await producer.send("t", b"y")
        return answer.error_code, count, round((sim.world.loop.time() - started) * 1000)

    code, count, milliseconds = play(asked)
    assert code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert 5 <= count <= 8
    assert 100 <= milliseconds < 150
    code, count, milliseconds = play(
        asked, {"add.partitions.to.txn.retry.backoff.ms": "100", "add.partitions.to.txn.retry.backoff.max.ms": "1000"}
    )
    assert code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert 10 <= count <= 12
    assert 1000 <= milliseconds < 1150
