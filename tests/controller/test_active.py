"""The active controller's own timers, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from pykbroker.controller.brokers import HeartbeatReply, heartbeat
from pykbroker.controller.result import Result
from pykbroker.metadata.features import group_version, transaction_version
from pykbroker.metadata.records import decode_record, encode_records
from pykbroker.runtime.later import judged
from pykbroker_wire.errors import ErrorCode, KafkaError
from pykbroker_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from pykbroker_wire.stored.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.controller.world import World, broker_record, node_config


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time stands still until `advance`."""

    shift = 0.0

    def time(self) -> float:
        return 1_000.0 + self.shift

    async def advance(self, seconds: float, step: float = 0.05) -> None:
        for _ in range(round(seconds / step)):
            self.shift += step
            for _ in range(5):
                await asyncio.sleep(0)


def run(main: Any) -> None:
    loop = Clock()
    try:
        loop.run_until_complete(main(loop))
    finally:
        loop.close()


def kinds(world: World) -> list[str]:
    return [type(decode_record(value)).__name__ for _, values in world.quorum.log for value in values]


def test_the_first_leader_writes_the_bootstrap_records_once() -> None:
    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        assert kinds(world) == [
            "BeginTransactionRecord",
            *6 * ["FeatureLevelRecord"],
            "ConfigRecord",
            "EndTransactionRecord",
        ]
        assert len(world.quorum.log) == 1
        assert world.loader.image.features.metadata_version == 30
        assert transaction_version(world.loader.image) == 2
        assert group_version(world.loader.image) == 1
        world.quorum.lead(None)
        await world.lead()
        await clock.advance(0.1)
        assert len(world.quorum.log) == 1
        world.close()

    run(main)


def test_bootstrap_records_can_be_given() -> None:
    async def main(clock: Clock) -> None:
        world = World()
        world.controller._bootstrap = [FeatureLevelRecord(name="metadata.version", feature_level=12)]
        await world.lead()
        await clock.advance(0.1)
        # Before transactions (KIP-868) they are simply one batch.
        assert kinds(world) == ["FeatureLevelRecord"]
        world.close()

    run(main)


def test_an_idle_log_moves_every_half_second() -> None:
    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(2.3)
        assert kinds(world).count("NoOpRecord") == 4
        # No idle record is written while there is something else to write.
        for _ in range(10):
            await clock.advance(0.3)
            await world.controller.submit("work", lambda state, now_ms: Result(None, [_config()]))
        assert kinds(world).count("NoOpRecord") <= 5
        world.quorum.lead(None)
        before = len(world.quorum.log)
        await clock.advance(3)
        assert len(world.quorum.log) == before
        world.close()

    run(main)


def _config() -> Any:
    from pykbroker_wire.stored.metadata import ConfigRecord

    return ConfigRecord(resource_type=4, resource_name="", name="x", value="y")


def test_idle_records_can_be_switched_off() -> None:
    async def main(clock: Clock) -> None:
        world = World(node_config(metadata__max__idle__interval__ms="0"))
        await world.lead()
        await clock.advance(3)
        assert "NoOpRecord" not in kinds(world)
        world.close()

    run(main)


def test_a_silent_broker_is_fenced_when_its_session_ends() -> None:
    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        register = broker_record(5, epoch=world.quorum.log_end_offset)
        await world.controller.submit("register", lambda state, now_ms: Result(None, [register]))
        beat = BrokerHeartbeatRequest(broker_id=5, broker_epoch=register.broker_epoch, current_metadata_offset=100)
        await world.controller.submit("beat", lambda state, now_ms: heartbeat(state, beat, now_ms, 0))
        await clock.advance(8.8)
        assert not world.loader.image.brokers[5].fenced
        await clock.advance(0.5)
        assert world.loader.image.brokers[5].fenced
        world.close()

    run(main)


@pytest.mark.parametrize("wish", ["serve", "shut down"])
def test_what_a_full_disk_refused_is_done_by_the_next_heartbeat(wish: str) -> None:
    """The controller keeps from a heartbeat only what its log has taken (seed 2388)."""

    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        register = broker_record(5, epoch=world.quorum.log_end_offset)
        register.fenced = wish == "serve"
        await world.controller.submit("register", lambda state, now_ms: Result(None, [register]))
        topic = TopicRecord(name="t", topic_id=b"t" * 16)
        led = PartitionRecord(partition_id=0, topic_id=topic.topic_id, replicas=[5, 6], isr=[5, 6], leader=5)
        records = [broker_record(6, epoch=world.quorum.log_end_offset), topic, led]
        await world.controller.submit("topic", lambda state, now_ms: Result(None, list(records)))
        beat = BrokerHeartbeatRequest(
            broker_id=5,
            broker_epoch=register.broker_epoch,
            current_metadata_offset=100,
            want_shut_down=wish == "shut down",
        )

        async def heartbeats() -> HeartbeatReply:
            controller = world.controller
            reply = await controller.submit(
                "beat", lambda state, ms: heartbeat(state, beat, ms, controller.next_offset)
            )
            await clock.advance(0.1)
            return reply

        world.quorum.is_short_of_room = True
        with pytest.raises(KafkaError) as refused:
            await heartbeats()
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        world.quorum.is_short_of_room = False
        reply = await heartbeats()
        if wish == "serve":
            assert not reply.is_fenced
            assert not world.loader.image.brokers[5].fenced
        else:
            assert reply.in_controlled_shutdown
            assert world.loader.image.topics.by_name["t"].partitions[0].leader == 6
            assert world.loader.image.brokers[5].in_controlled_shutdown
        world.close()

    run(main)


def test_a_new_controller_gives_everybody_a_whole_session() -> None:
    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        register = broker_record(5, epoch=world.quorum.log_end_offset)
        await world.controller.submit("register", lambda state, now_ms: Result(None, [register]))
        await clock.advance(5)
        world.quorum.lead(2)
        await clock.advance(30)
        await world.lead()
        await clock.advance(8.8)
        assert not world.loader.image.brokers[5].fenced
        await clock.advance(0.5)
        assert world.loader.image.brokers[5].fenced
        world.close()

    run(main)


def test_a_transaction_that_a_leader_left_open_is_aborted() -> None:
    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        world.quorum.lead(2)
        values = [BeginTransactionRecord(name="half"), TopicRecord(name="t", topic_id=b"t" * 16)]
        world.quorum.append(encode_records(values, 30))
        await clock.advance(0.1)
        assert "t" in world.controller.state.image.topics.by_name
        assert "t" not in world.loader.image.topics.by_name
        await world.lead()
        await clock.advance(0.1)
        assert kinds(world)[-1] == "AbortTransactionRecord"
        assert "t" not in world.controller.state.image.topics.by_name
        assert "t" not in world.loader.image.topics.by_name
        world.close()

    run(main)


@pytest.mark.parametrize("next_leader", [1, 2])
def test_a_transaction_left_open_is_aborted_after_the_first_abort_was_lost(next_leader: int) -> None:
    """A node that renounced once forgot the transaction, took half of it for whole, and never aborted it. From then on
    no node would have published any metadata."""
    topic = [BeginTransactionRecord(name="half"), TopicRecord(name="half", topic_id=b"t" * 16)]

    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        world.quorum.lead(2)
        world.quorum.append(encode_records([TopicRecord(name="before", topic_id=b"b" * 16), *topic], 30))
        world.quorum.append(encode_records([TopicRecord(name="more", topic_id=b"m" * 16)], 30))
        await clock.advance(0.1)
        world.quorum.automatic = False
        await world.lead()
        await clock.advance(0.1)
        assert kinds(world)[-1] == "AbortTransactionRecord"
        assert list(world.controller.state.image.topics.by_name) == ["before"]
        # The leadership is lost before the abort is committed.
        world.quorum.lose_uncommitted()
        world.quorum.lead(2)
        assert kinds(world)[-1] == "TopicRecord"
        assert list(world.controller.state.image.topics.by_name) == ["before", "half", "more"]
        world.quorum.automatic = True
        if next_leader == 1:
            await world.lead()
        else:
            world.quorum.append(encode_records([AbortTransactionRecord(reason="failover")], 30))
        await clock.advance(0.1)
        assert kinds(world)[-1] == "AbortTransactionRecord"
        world.quorum.append(encode_records([TopicRecord(name="after", topic_id=b"a" * 16)], 30))
        await clock.advance(0.1)
        if next_leader == 2:
            assert list(world.controller.state.image.topics.by_name) == ["before", "after"]
        assert list(world.loader.image.topics.by_name) == ["before", "after"]
        world.close()

    run(main)


def test_a_snapshot_is_a_start() -> None:
    from pykbroker.metadata.snapshot import snapshot_values

    async def main(clock: Clock) -> None:
        first = World()
        await first.lead()
        await first.controller.submit(
            "topic", lambda state, now_ms: Result(None, [TopicRecord(name="a.b", topic_id=b"t" * 16), NoOpRecord()])
        )
        second = World()
        image = first.loader.image
        for listener in (second.controller, second.loader):
            listener.handle_snapshot(image.offset, 1, snapshot_values(image))
        second.quorum.log_end_offset = image.offset + 1
        await second.lead()
        await clock.advance(0.1)
        assert kinds(second) == []
        assert second.controller.state.collisions.of("a_b") == {"a.b"}
        assert second.loader.image.topics == image.topics
        first.close()
        second.close()

    run(main)


def test_a_very_large_operation_is_several_batches() -> None:
    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        world.quorum.automatic = False
        future = world.controller.submit("large", lambda state, now_ms: Result("done", [NoOpRecord()] * 25_000))
        assert [len(values) for _, values in world.quorum.log[1:]] == [10_000, 10_000, 5_000]
        assert not future.done()
        world.quorum.commit()
        assert await future == "done"
        world.close()

    run(main)


@pytest.mark.slow
def test_an_operation_of_which_a_part_is_committed_stays_in_part() -> None:
    """The next leader has the committed part of it. A controller that renounced knew nothing of it."""

    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        world.quorum.automatic = False
        topics: list[Any] = [TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16)) for number in range(25_000)]
        future = world.controller.submit("large", lambda state, now_ms: Result("done", topics))
        world.quorum.commit(1)
        world.quorum.lead(None)
        world.quorum.lose_uncommitted()
        with pytest.raises(KafkaError) as caught:
            await future
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert len(world.loader.image.topics) == 10_000
        assert world.controller.state.image.topics == world.loader.image.topics
        await world.lead()
        world.quorum.automatic = True
        assert await world.controller.read("topics", lambda state: len(state.image.topics)) == 10_000
        world.close()

    run(main)


def test_a_leadership_that_ends_within_an_append_leaves_nothing_of_it() -> None:
    """When a node that was paused appends, its clock shows that it no longer leads. It once took the records into the
    state that it had just reset: "topic exists already" at the next commit, and a wrong state from then on."""

    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        await clock.advance(0.1)
        append = world.quorum.append

        def append_and_resign(records: list[bytes]) -> int:
            last_offset = append(records)
            world.quorum.lead(None)
            return last_offset

        world.quorum.automatic = False
        world.quorum.append = append_and_resign  # type: ignore[method-assign]
        topic = TopicRecord(name="t", topic_id=b"t" * 16)
        future = world.controller.submit("topic", lambda state, now_ms: Result("done", [topic]))
        with pytest.raises(KafkaError) as caught:
            await future
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert "t" not in world.controller.state.image.topics.by_name
        world.quorum.append = append  # type: ignore[method-assign]
        world.quorum.lose_uncommitted()
        # The next leader creates a topic with that name.
        world.quorum.append(encode_records([TopicRecord(name="t", topic_id=b"u" * 16)], 30))
        world.quorum.commit()
        assert world.controller.state.image.topics == world.loader.image.topics
        assert world.controller.state.image.topics.by_name["t"].id == b"u" * 16
        world.close()

    run(main)


def test_a_bug_in_an_operation_is_an_error_of_that_operation_only(caplog: pytest.LogCaptureFixture) -> None:
    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()

        def broken(state: Any, now_ms: int) -> Result[None]:
            raise ZeroDivisionError

        with pytest.raises(KafkaError) as caught:
            await world.controller.submit("broken", broken)
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await world.controller.read("fine", lambda state: 1) == 1
        assert "broken failed" in caplog.text
        world.close()

    run(main)


def test_a_controller_whose_own_batch_cannot_be_replayed_decides_nothing_more() -> None:
    """The batch is in the log, and the state lacks it. When it is committed the listener fails, which ends the node."""

    async def main(clock: Clock) -> None:
        world = World()
        await world.lead()
        world.quorum.automatic = False
        replay = world.controller.state.replay

        def broken(*args: Any) -> None:
            raise ZeroDivisionError

        world.controller.state.replay = broken  # type: ignore[method-assign, assignment]
        topic = TopicRecord(name="t", topic_id=b"t" * 16)
        for code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER):
            with pytest.raises(KafkaError) as caught:
                await world.controller.submit("topic", lambda state, now_ms: Result("done", [topic]))
            assert caught.value.code is code
        world.controller.state.replay = replay  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="could not be replayed"):
            world.quorum.commit()
        world.close()

    run(main)


@pytest.mark.slow
def test_an_answer_whose_client_has_left_is_no_error_line() -> None:
    """Two nodes sent heartbeats and stopped. The last controller stopped with "Future exception was never
    retrieved"."""
    complaints: list[dict[str, Any]] = []

    async def main(clock: Clock) -> None:
        clock.set_exception_handler(lambda _, context: complaints.append(context))
        future: asyncio.Future[None] = clock.create_future()
        judged(future, str, str).cancel()
        future.set_exception(KafkaError(ErrorCode.NOT_CONTROLLER))
        await asyncio.sleep(0)
        del future
        gc.collect()

    run(main)
    assert complaints == []


def test_records_that_end_a_transaction_are_known() -> None:
    assert decode_record(bytes((1, EndTransactionRecord.API_KEY, 0, 0))) == EndTransactionRecord()
