"""The persister over real sockets, with share coordinators that the test scripts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from pykbroker.net.promise import Promise
from pykbroker.runtime import OsRuntime
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_wire.errors import ErrorCode
from testkit.promises import results
from testkit.share_metadata import ShareMetadata
from tests.share_persister.coordinators import FIND, WRITE, PersisterAndItsWay, ScriptedCoordinator, batch, key

DONE = ShareStateAnswer(ErrorCode.NONE)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        # The conditions are those of a peer, which has no event for them.
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def has_more(coordinator: ScriptedCoordinator, writes: int) -> bool:
    return len(coordinator.asked(WRITE)) > writes


def play(scenario: Callable[[ScriptedCoordinator, ShareMetadata, PersisterAndItsWay], Awaitable[None]]) -> None:
    async def whole() -> None:
        loop = asyncio.get_running_loop()
        coordinator = ScriptedCoordinator(1)
        server = await loop.create_server(coordinator, "127.0.0.1", 0)
        runtime = OsRuntime(loop)
        metadata = ShareMetadata({1: server.sockets[0].getsockname()[:2]})
        way = PersisterAndItsWay(runtime, metadata)
        try:
            await scenario(coordinator, metadata, way)
        finally:
            way.close()
            runtime.close()
            server.close()

    asyncio.run(whole())


@pytest.mark.parametrize("is_known", [True, False])
def test_five_hundred_writes_are_one_request(is_known: bool) -> None:
    async def scenario(coordinator: ScriptedCoordinator, metadata: ShareMetadata, way: PersisterAndItsWay) -> None:
        if is_known:
            metadata.lead(1)
        writes = [way.persister.write(key(each), 0, 0, each, 0, [batch(0, 99)]) for each in range(500)]
        assert await results(writes, 20) == [DONE] * 500
        sizes = [len(request.topics[0].partitions) for request in coordinator.asked(WRITE)]
        assert sum(sizes) == 500
        # A lookup has 100 keys; the writes of the first one may go before the others are found.
        assert len(sizes) == 1 if is_known else len(sizes) <= 5
        assert len(coordinator.asked(FIND)) == (0 if is_known else 5)
        assert [state.start_offset for state in coordinator.states.values()] == list(range(500))

    play(scenario)


def test_connections_that_end_lose_and_repeat_no_answer() -> None:
    async def scenario(coordinator: ScriptedCoordinator, metadata: ShareMetadata, way: PersisterAndItsWay) -> None:
        metadata.lead(1)
        counts: dict[int, int] = {}

        def count(each: int) -> Callable[[Promise], None]:
            def answered(promise: Promise) -> None:
                assert promise.result() == DONE
                counts[each] = counts.get(each, 0) + 1

            return answered

        for first in (0, 50, 100):
            coordinator.held.add(WRITE)
            seen = len(coordinator.asked(WRITE))
            for each in range(first, first + 50):
                way.persister.write(key(each), 0, 0, each, 0, [batch(0, 9)]).add_done_callback(count(each))
            await until(partial(has_more, coordinator, seen))
            for connection in coordinator.connections:
                connection.transport.abort()
            coordinator.held.clear()
        await until(lambda: len(counts) == 150)
        assert set(counts.values()) == {1}
        assert len(coordinator.states) == 150

    play(scenario)
