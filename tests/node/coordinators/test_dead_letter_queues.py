# ruff: noqa: ASYNC110  # time is virtual here: looking again and again costs nothing
"""The writer of dead letters of a whole node: its topic, and copies out of the node's own log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker.share_leaders.dead_letters import DeadLetterCause, DeadLetters
from pykbroker_log.memory_disk import Survive
from pykbroker_wire.records.batch import iter_batches
from pykbroker_wire.records.compression import Codec
from pykbroker_wire.records.record import iter_records
from testkit.acting import acts
from testkit.nodes.share_members import GROUP_CONFIG
from testkit.nodes.sim import Sim, playing

Play = Callable[..., Any]
GROUP = "g"
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
