# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""Dead letters of a whole node: what becomes one, its topic, and copies out of the node's own log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import iter_records
from testkit.acting import acts
from testkit.nodes.share_members import GROUP_CONFIG, share_members
from testkit.nodes.sim import Sim, playing
from testkit.share_requests import GROUP, RELEASE

Play = Callable[..., Any]
ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}
REJECT = 3
QUEUE = "dlq.g"
TOPIC = 2
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
CREATES = {"errors.deadletterqueue.auto.create.topics.enable": "true"}
NAME = "errors.deadletterqueue.topic.name"
COPIES = "errors.deadletterqueue.copy.record.enable"


@pytest.fixture
def play() -> Iterator[Play]:
    """`play(scenario, {key: value})` on a separate node."""
    with playing() as run:
        yield run


async def source(sim: Sim, **batch: Any) -> None:
    await sim.create("t")
    answer = await sim.produce("t", sim.batch(b"a", b"b", b"c", key=b"k", **batch))
    assert answer.error_code == 0, answer


async def written(sim: Sim, first: int, last: int, patience: float = 1) -> bool:
    """Order letters. Return True if they are written or given up in time."""
    letters = DeadLetters(GROUP, await sim.topic_id("t"), 0, first, last, 5, DeadLetterCause.REJECTED)
    promise = sim.node.broker.shares.dead_letters.write(letters)
    end = asyncio.get_running_loop().time() + patience
    while not promise.done() and asyncio.get_running_loop().time() < end:
        await asyncio.sleep(0.01)
    return bool(promise.done())


async def letters_of(sim: Sim, topic: str = QUEUE) -> list[tuple[str, bytes | None, bytes | None]]:
    """Return the offset, the key and the value of each letter."""
    answer = await sim.fetch(topic)
    [records] = [each.partitions[0].records for each in answer.responses]
    data = bytes(records or b"")
    return [
        (str(dict(letter.headers)["__dlq.errors.offset"] or b"", "utf-8"), copied(letter.key), copied(letter.value))
        for position, header in iter_batches(data)
        for letter in iter_records(data, position, header)
    ]


def copied(view: memoryview | None) -> bytes | None:
    return None if view is None else bytes(view)


@acts(topic=("errors.deadletterqueue.group.enable",), group=("errors.deadletterqueue.topic.name",))
def test_letters_go_to_the_topic_of_the_group_if_it_takes_letters(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await source(sim)
        await sim.create(QUEUE)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: QUEUE})
        assert await written(sim, 0, 0)
        assert await letters_of(sim) == []
        await sim.alter(TOPIC, QUEUE, ENABLED)
        assert await written(sim, 1, 2)
        assert await letters_of(sim) == [("1", None, None), ("2", None, None)]

    play(scenario)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@acts(group=("errors.deadletterqueue.copy.record.enable",))
def test_copies_have_the_key_and_the_value(play: Play, codec: Codec) -> None:
    async def scenario(sim: Sim) -> None:
        await source(sim, codec=codec)
        await sim.create(QUEUE)
        await sim.alter(TOPIC, QUEUE, ENABLED)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: QUEUE, COPIES: "true"})
        # The log ends at offset 3.
        assert await written(sim, 1, 4)
        assert await letters_of(sim) == [("1", b"k", b"b"), ("2", b"k", b"c"), ("3", None, None), ("4", None, None)]

    play(scenario)


@acts(broker=("errors.deadletterqueue.auto.create.topics.enable",))
def test_a_missing_topic_is_created_with_the_defaults_of_the_cluster(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await source(sim)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: QUEUE})
        assert await written(sim, 0, 0)
        image = sim.node.broker.services.metadata.image
        assert len(image.topics.by_name[QUEUE].partitions) == 3
        assert await letters_of(sim) == [("0", None, None)]

    play(scenario, CREATES | {"num.partitions": "3"})


@acts(broker=("errors.deadletterqueue.topic.name.prefix",))
def test_the_name_of_the_topic_needs_the_prefix_of_the_broker(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await source(sim)
        for name in ("dead.letters", QUEUE):
            await sim.create(name)
            await sim.alter(TOPIC, name, ENABLED)
            await sim.alter(GROUP_CONFIG, GROUP, {NAME: name})
            assert await written(sim, 0, 0)
        assert len(await letters_of(sim, "dead.letters")) == 1
        assert await letters_of(sim) == []

    play(scenario, {"errors.deadletterqueue.topic.name.prefix": "dead."})


def test_the_source_topic_may_be_the_dead_letter_topic(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await source(sim)
        await sim.alter(TOPIC, "t", ENABLED)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: "t", COPIES: "true"})
        assert await written(sim, 1, 1)
        answer = await sim.fetch("t", 3)
        data = bytes(answer.responses[0].partitions[0].records)
        [(position, header)] = iter_batches(data)
        [letter] = iter_records(data, position, header)
        assert copied(letter.value) == b"b"

    play(scenario, {"errors.deadletterqueue.topic.name.prefix": ""})


def test_letters_that_a_stop_interrupts_have_no_end(play: Play) -> None:
    """So their records stay ARCHIVING, and are written again."""

    async def scenario(sim: Sim) -> None:
        await source(sim)
        await sim.create(QUEUE)
        await sim.alter(TOPIC, QUEUE, ENABLED)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: QUEUE})
        letters = DeadLetters(GROUP, await sim.topic_id("t"), 0, 0, 0, 5, DeadLetterCause.REJECTED)
        promise = sim.node.broker.shares.dead_letters.write(letters)
        sim.sim_node.kill(Survive.EVERYTHING)
        assert not promise.done()
        await sim.sim_node.start()
        assert await written(sim, 0, 0)

    play(scenario)


async def raised(sim: Sim) -> None:
    """Let the cluster have dead letter queues."""
    update = FeatureUpdateKey(feature="share.version", max_version_level=2, upgrade_type=1)
    answer = await sim.call(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]))
    assert answer.error_code == ErrorCode.NONE, answer


async def until_letters(sim: Sim, count: int) -> list[tuple[str, bytes | None, bytes | None]]:
    while len(found := await letters_of(sim)) < count:
        await asyncio.sleep(0.05)
    return found


def test_a_rejected_record_and_one_at_its_limit_become_letters(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await raised(sim)
        group = await share_members(sim, delivery_count_limit="2", record_lock_duration_ms="2000")
        await sim.create(QUEUE)
        await sim.alter(TOPIC, QUEUE, ENABLED)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: QUEUE, COPIES: "true"})
        await sim.send("t", b"a", b"b", b"c")
        assert await group.acquire(0) == {0: [(0, 2, 1)]}
        assert await group.acknowledge({0: [(0, 0, REJECT), (1, 1, RELEASE)]}, epoch=1) == {0: ErrorCode.NONE}
        assert await until_letters(sim, 1) == [("0", None, b"a")]
        assert await group.acquire(epoch=2) == {0: [(1, 1, 2)]}
        assert await group.acknowledge({0: [(1, 1, RELEASE)]}, epoch=3) == {0: ErrorCode.NONE}
        assert (await until_letters(sim, 2))[1:] == [("1", None, b"b")]
        # The lock of the first delivery ends, and then that of the second.
        assert await group.acquire(epoch=4, max_wait_ms=3_000) == {0: [(2, 2, 2)]}
        assert (await until_letters(sim, 3))[2:] == [("2", None, b"c")]

    play(scenario, ONE | {"group.share.min.record.lock.duration.ms": "1000"})


def test_a_letter_that_a_kill_interrupts_is_written_after_the_start(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        await raised(sim)
        group = await share_members(sim)
        await sim.create(QUEUE)
        await sim.alter(TOPIC, QUEUE, ENABLED)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: QUEUE})
        await sim.send("t", b"a")
        await group.acquire(0)
        await group.acknowledge({0: [(0, 0, REJECT)]}, epoch=1)
        sim.sim_node.kill(Survive.EVERYTHING)
        await sim.sim_node.start()
        await group.fetch(0, max_wait_ms=2_500)
        assert {offset for offset, _, _ in await until_letters(sim, 1)} == {"0"}

    play(scenario, ONE)


def test_without_share_version_2_nothing_is_written(play: Play) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.create(QUEUE)
        await sim.alter(TOPIC, QUEUE, ENABLED)
        await sim.alter(GROUP_CONFIG, GROUP, {NAME: QUEUE})
        await sim.send("t", b"a", b"b")
        await group.acquire(0)
        assert await group.acknowledge({0: [(0, 0, REJECT)]}, epoch=1) == {0: ErrorCode.NONE}
        await raised(sim)
        assert await group.acknowledge({0: [(1, 1, REJECT)]}, epoch=2) == {0: ErrorCode.NONE}
        assert await until_letters(sim, 1) == [("1", None, None)]

    play(scenario, ONE)
