"""A batch that takes longer to check than a turn of the loop may is checked elsewhere, and the written records and the
response are the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker.api import produce
from pykbroker.dispatch.dispatcher import Dispatcher
from pykbroker.net.promise import Promise
from pykbroker.replica.batch_checks import BatchChecks
from pykbroker.runtime import OsRuntime
from pykbroker_log import validate
from pykbroker_log.log_config import LogConfig
from pykbroker_log.validate import CheckedBatch, RecordErrors
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.records.batch import build_batch
from pykbroker_wire.records.compression import DEFAULT_LIMIT, Codec
from pykbroker_wire.records.record import encode_record
from pykbroker_wire.stored.metadata import ConfigRecord, PartitionChangeRecord
from testkit.logs.helpers import sealed
from testkit.nodes.wire import frame_of
from tests.api.broker_half import Half, through_bytes
from tests.replica.world import NOW_MS, topic_id

VERSION = ProduceRequest.MAX_VERSION
CODECS = [codec for codec in Codec if codec]


def large(codec: Codec = Codec.ZSTD, *, key: bytes | None = b"k", size: int = validate.AT_ONCE_BYTES) -> bytearray:
    return bytearray(build_batch([(key, bytes(size), (), NOW_MS), (key, b"v", (), NOW_MS)], codec=codec))


def small(key: bytes | None = b"k") -> bytearray:
    return bytearray(build_batch([(key, b"v", (), NOW_MS)]))


def request(*batches: bytearray, acks: int = -1) -> ProduceRequest:
    """Return a request with a batch for each partition."""
    data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(batches)]
    topics = [TopicProduceData(topic_id=topic_id("t"), partition_data=data)]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=1_000, topic_data=topics)


class Threads:
    """The threads of a broker half, whose calls run when the test allows it."""

    def __init__(self, half: Half, patch: pytest.MonkeyPatch) -> None:
        self.half = half
        self.waiting: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        patch.setattr(half.services.runtime, "run_blocking", self._run_blocking)

    def _run_blocking(self, function: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.half.loop.create_future()
        self.waiting.append((future, lambda: function(*args)))
        return future

    def run(self) -> None:
        """Run the calls that wait when this begins."""
        waiting, self.waiting = self.waiting, []
        for future, call in waiting:
            try:
                result = call()
            except Exception as error:  # noqa: BLE001 - of the future
                future.set_exception(error)
            else:
                future.set_result(result)
        self.half.loop.settle()


@pytest.fixture
def half() -> Half:
    return Half()


@pytest.fixture
def threads(half: Half, monkeypatch: pytest.MonkeyPatch) -> Threads:
    return Threads(half, monkeypatch)


def asked(half: Half, *batches: bytearray) -> Promise:
    answer = half.ask(produce, request(*batches))
    assert isinstance(answer, Promise)
    half.loop.settle()
    assert not answer.done()
    return answer


def codes(answer: Promise) -> list[ErrorCode]:
    response: Any = through_bytes(answer.result(), VERSION)
    return [ErrorCode(one.error_code) for one in response.responses[0].partition_responses]


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())
def test_a_batch_of_more_than_a_turn_is_checked_on_a_thread(half: Half, threads: Threads, codec: Codec) -> None:
    partition = half.world.create("t")
    answer = asked(half, large(codec))
    assert partition.log.log_end_offset == 0
    threads.run()
    assert codes(answer) == [ErrorCode.NONE]
    assert partition.log.log_end_offset == 2
    expected = validate.validate_and_assign(
        large(codec), LogConfig(), offset=0, leader_epoch=partition.leader_epoch, now_ms=NOW_MS
    )
    assert partition.log.read(0, 1 << 22, 2).joined() == bytes(expected.records)


def test_a_large_batch_is_looked_at_once_before_it_is_checked_elsewhere(
    half: Half, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler that reads a frame checks it, and not also the one that decodes it."""
    partition = half.world.create("t")
    looked: list[bool] = []

    def counted(*arguments: Any, **options: Any) -> Any:
        looked.append(options["at_once"])
        return validate.validate(*arguments, **options)

    monkeypatch.setattr("pykbroker_log.partition_log.validate", counted)
    asked = request(large())
    frame = memoryview(bytearray(frame_of(asked, VERSION, client_id="me")[4:]))
    Dispatcher(half.services)(half.context(asked).peer, frame)
    half.loop.settle()
    assert looked == [True]
    threads.run()
    assert partition.log.log_end_offset == 2
    assert looked == [True]


def test_the_partitions_of_a_request_are_appended_to_once_each(half: Half, threads: Threads) -> None:
    half.world.create("t", 4)
    answer = asked(half, small(), large(), small(), large())

    def ends() -> list[int]:
        return [half.replicas.get("t", index).log.log_end_offset for index in range(4)]

    assert ends() == [1, 0, 0, 0]
    threads.run()
    assert ends() == [1, 2, 1, 0]
    threads.run()
    assert ends() == [1, 2, 1, 2]
    assert codes(answer) == [ErrorCode.NONE] * 4


def test_without_acknowledgements(half: Half, threads: Threads) -> None:
    partition = half.world.create("t")
    half.ask(produce, request(large(), acks=0))
    half.loop.settle()
    threads.run()
    assert partition.log.log_end_offset == 2


def _keyless() -> bytearray:
    return large(key=None)


def _beyond_the_limit() -> bytearray:
    return large(size=DEFAULT_LIMIT + 1)


def _malformed() -> bytearray:
    content = encode_record(0, 0, b"k", bytes(validate.AT_ONCE_BYTES)) + b"what is this?"
    return bytearray(sealed(content, 1, Codec.ZSTD))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (_keyless, ErrorCode.INVALID_RECORD),
        (_malformed, ErrorCode.INVALID_RECORD),
        (_beyond_the_limit, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_wrong_with_it_is_answered(
    half: Half, threads: Threads, make: Callable[[], bytearray], code: ErrorCode
) -> None:
    half.world.create("t", 2, cleanup_policy="compact")
    answer = asked(half, make(), small())
    threads.run()
    assert codes(answer) == [code, ErrorCode.NONE]
    assert half.replicas.get("t", 0).log.log_end_offset == 0


def test_records_that_are_refused_are_named(half: Half, threads: Threads) -> None:
    half.world.create("t", cleanup_policy="compact")
    answer = asked(half, large(key=None))
    threads.run()
    response: Any = through_bytes(answer.result(), VERSION)
    (one,) = response.responses[0].partition_responses
    assert [error.batch_index for error in one.record_errors] == [0, 1]


def test_a_configuration_that_changed_meanwhile_counts(half: Half, threads: Threads) -> None:
    partition = half.world.create("t")
    answer = asked(half, large(key=None))
    half.world.publish(ConfigRecord(resource_type=2, resource_name="t", name="cleanup.policy", value="compact"))
    threads.run()
    assert partition.log.log_end_offset == 0
    assert not answer.done()
    threads.run()
    assert codes(answer) == [ErrorCode.INVALID_RECORD]


def test_a_topic_that_went_meanwhile(half: Half, threads: Threads) -> None:
    half.world.create("t")
    answer = asked(half, large())
    half.world.delete("t")
    threads.run()
    assert codes(answer)[0] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_a_partition_that_is_led_elsewhere_has_nothing_checked(half: Half, threads: Threads) -> None:
    half.world.create("t", replicas=(1, 2))
    half.world.publish(PartitionChangeRecord(partition_id=0, topic_id=topic_id("t"), leader=2))
    response: Any = half.ask(produce, request(large()))
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not threads.waiting


def test_one_batch_is_checked_at_a_time(half: Half, threads: Threads) -> None:
    checks = half.services.batch_checks
    under_way = [checks.check(large(), LogConfig(), NOW_MS) for _ in range(3)]
    for done in range(4):
        assert [future.done() for future in under_way] == [index < done for index in range(3)]
        assert len(threads.waiting) == (done < 3)
        threads.run()


def test_a_stop_ends_all_that_wait(half: Half, threads: Threads) -> None:
    checks = half.services.batch_checks
    under_way = [checks.check(large(), LogConfig(), NOW_MS) for _ in range(3)]
    threads.waiting[0][0].cancel()
    half.loop.settle()
    assert all(future.cancelled() for future in under_way)


def test_a_check_that_fails_is_told_and_the_next_one_begins(half: Half, threads: Threads) -> None:
    checks = half.services.batch_checks
    first, second = (checks.check(large(), LogConfig(), NOW_MS) for _ in range(2))
    threads.waiting.pop()[0].set_exception(MemoryError())
    half.loop.settle()
    assert isinstance(first.exception(), MemoryError)
    threads.run()
    assert isinstance(second.result(), CheckedBatch)


# -- a thread and a worker process ------------------------------------------------------------------------------------


@pytest.fixture(params=[True, False], ids=["a thread", "a worker process"])
def checked(request: pytest.FixtureRequest) -> Iterator[Callable[[bytearray, LogConfig], CheckedBatch | KafkaError]]:
    loop = asyncio.new_event_loop()
    runtime = OsRuntime(loop)
    checks = BatchChecks(runtime, in_process=request.param)

    async def check(records: bytearray, config: LogConfig) -> CheckedBatch | KafkaError:
        return await checks.check(records, config, NOW_MS)

    yield lambda records, config: loop.run_until_complete(check(records, config))
    runtime.close()
    loop.close()


def test_what_comes_back_is_what_a_check_here_finds(
    checked: Callable[[bytearray, LogConfig], CheckedBatch | KafkaError],
) -> None:
    gzip = LogConfig(compression_type="gzip")
    append_time = LogConfig(message_timestamp_type="LogAppendTime")
    for config in (LogConfig(), gzip, append_time):
        found = checked(large(), config)
        assert isinstance(found, CheckedBatch)
        batch = found.under(config)
        batch.assign(7, 3)
        here = validate.validate_and_assign(large(), config, offset=7, leader_epoch=3, now_ms=NOW_MS)
        assert {name: getattr(batch, name) for name in batch.__slots__} == {
            name: getattr(here, name) for name in here.__slots__
        }


def test_a_verdict_comes_back_whole(checked: Callable[[bytearray, LogConfig], CheckedBatch | KafkaError]) -> None:
    error = checked(large(key=None), LogConfig(cleanup_policy=frozenset({"compact"})))
    assert isinstance(error, RecordErrors)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [0, 1]
    malformed = checked(_malformed(), LogConfig())
    assert isinstance(malformed, KafkaError)
    assert malformed.code == ErrorCode.INVALID_RECORD
    assert "malformed" in malformed.message
