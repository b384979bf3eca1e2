"""The simulated world itself: which callbacks run, the effect of the network on a connection, and the hook for
watchers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from pykbroker_log.memory_disk import MemoryDisk
from pykbroker_worlds.simulated.network import Delay, both_ways
from pykbroker_worlds.simulated.world import LONGEST_HAND_OVER_SECONDS, SimRuntime, SimWorld

PORT = 9092


class End(asyncio.Protocol):
    """One side of a connection, which records what it receives."""

    def __init__(self) -> None:
        self.received = b""
        self.lost: list[BaseException | None] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost.append(exc)

    def send(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class Two:
    """A server and a client on two machines."""

    def __init__(self, seed: int = 1) -> None:
        self.world = SimWorld(seed)
        self.network = self.world.network
        self.server = self.world.runtime("server", MemoryDisk(), "a")
        self.client = self.world.runtime("client", MemoryDisk(), "b")
        self.accepted: list[End] = []
        self.listen(self.server)

    def listen(self, runtime: SimRuntime) -> None:
        def accept() -> End:
            self.accepted.append(End())
            return self.accepted[-1]

        self.network.listen(runtime, accept, PORT).serving = True

    def play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await scenario()

        self.world.loop.run_until_complete(run())

    async def connect(self) -> End:
        _, end = await self.client.connect(End, "localhost", PORT)
        assert isinstance(end, End)
        return end


@pytest.fixture
def two() -> Iterator[Two]:
    made = Two()
    yield made
    made.world.end()


def test_after_event_sees_each_callback_once_it_ran(two: Two) -> None:
    seen: list[int] = []
    done: list[str] = []
    two.world.after_event.append(lambda: seen.append(len(done)))

    async def scenario() -> None:
        for name in "abc":
            two.world.loop.call_soon(done.append, name)
        await asyncio.sleep(1)

    two.play(scenario)
    assert [count for count in (1, 2, 3) if count in seen] == [1, 2, 3]


def test_what_a_watcher_raises_ends_the_run(two: Two) -> None:
    def watch() -> None:
        if two.world.loop.time() > 5:
            raise AssertionError("does not hold")

    two.world.after_event.append(watch)
    with pytest.raises(AssertionError, match="does not hold"):
        two.play(lambda: asyncio.sleep(10))


def test_a_paused_process_does_nothing_and_then_all_that_has_come(two: Two) -> None:
    async def scenario() -> None:
        end = await two.connect()
        await asyncio.sleep(0.1)
        ticks: list[float] = []
        loop = two.server.loop
        loop.call_later(1, lambda: ticks.append(loop.time()))
        task = loop.create_task(asyncio.sleep(1))
        two.server.pause()
        end.send(b"sent to a paused process")
        another = await two.connect()
        another.send(b"its kernel accepts")
        await asyncio.sleep(10)
        assert (two.accepted[0].received, ticks, task.done(), len(two.accepted)) == (b"", [], False, 1)
        two.server.resume()
        await asyncio.sleep(0.1)
        assert two.accepted[0].received == b"sent to a paused process"
        assert two.accepted[1].received == b"its kernel accepts"
        assert len(ticks) == 1
        assert ticks[0] > 10
        await task

    two.play(scenario)


def test_nothing_of_a_killed_process_runs_and_its_peers_are_reset(two: Two) -> None:
    async def scenario() -> None:
        end = await two.connect()
        task = two.server.loop.create_task(asyncio.sleep(1))
        two.server.kill()
        await asyncio.sleep(5)
        assert isinstance(end.lost[0], ConnectionResetError)
        assert not task.done()
        with pytest.raises(ConnectionRefusedError):
            await two.connect()

    two.play(scenario)


def test_a_machine_without_power_is_silent_and_resets_when_it_is_back(two: Two) -> None:
    async def scenario() -> None:
        end = await two.connect()
        two.server.kill(power=True)
        end.send(b"into the dark")
        connecting = asyncio.ensure_future(two.connect())
        done, _ = await asyncio.wait([connecting], timeout=2.9)
        assert not end.lost
        assert not done
        two.network.power_on("a")
        two.listen(two.world.runtime("server 2", MemoryDisk(), "a"))
        await asyncio.wait([connecting])
        await asyncio.sleep(1)
        assert not end.lost
        end.send(b"do you know me?")
        await asyncio.sleep(1)
        assert isinstance(end.lost[0], ConnectionResetError)

    two.play(scenario)


@pytest.mark.parametrize("resets", [0.0, 1.0])
def test_what_was_sent_into_silence_arrives_afterwards_or_the_connection_is_reset(two: Two, resets: float) -> None:
    async def scenario() -> None:
        end = await two.connect()
        await asyncio.sleep(0.1)
        two.network.silence([("b", "a")])
        end.send(b"late")
        two.accepted[0].send(b"the other direction passes")
        await asyncio.sleep(5)
        assert two.accepted[0].received == b""
        assert end.received == b"the other direction passes"
        two.network.restore([("b", "a")], resets=resets)
        await asyncio.sleep(1)
        assert two.accepted[0].received == (b"" if resets else b"late")
        assert bool(end.lost) == bool(two.accepted[0].lost) == bool(resets)

    two.play(scenario)


def test_no_connection_is_made_while_one_direction_is_silent(two: Two) -> None:
    async def scenario() -> None:
        two.network.silence([("a", "b")])
        connecting = asyncio.ensure_future(two.connect())
        await asyncio.sleep(60)
        assert not connecting.done()
        two.network.restore([("a", "b")])
        await connecting

    two.play(scenario)


def test_a_machine_refuses_connections_and_keeps_those_it_has(two: Two) -> None:
    async def scenario() -> None:
        end = await two.connect()
        two.network.refuse("a")
        with pytest.raises(ConnectionRefusedError):
            await two.connect()
        end.send(b"still here")
        await asyncio.sleep(1)
        assert two.accepted[0].received == b"still here"
        two.network.accept("a")
        await two.connect()

    two.play(scenario)


def test_a_lost_connection_says_nothing_until_it_is_reset(two: Two) -> None:
    async def scenario() -> None:
        end = await two.connect()
        await asyncio.sleep(0.1)
        two.network.lose_one("a", "b", 20.0)
        end.send(b"lost")
        await asyncio.sleep(19)
        assert not two.accepted[0].received
        assert not end.lost
        await asyncio.sleep(2)
        assert len(end.lost) == len(two.accepted[0].lost) == 1

    two.play(scenario)


def test_a_slow_way_keeps_the_order_of_each_connection(two: Two) -> None:
    async def scenario() -> None:
        two.network.slow(both_ways(["a"], ["b"]), Delay(0.1, 1.0, tail_chance=0.5))
        end = await two.connect()
        began = two.world.loop.time()
        text = b"0123456789" * 20
        for place in range(len(text)):
            end.send(text[place : place + 1])
        while two.accepted[0].received != text:
            assert text.startswith(two.accepted[0].received)
            await asyncio.sleep(0.1)
        assert two.world.loop.time() - began > 0.5

    two.play(scenario)


def test_a_clock_that_is_wrong_is_that_of_one_process(two: Two) -> None:
    two.server.skew_ms = 3_600_000
    assert two.server.now_ms() - two.client.now_ms() == 3_600_000


def test_a_timer_runs_once_also_when_most_others_were_cancelled(two: Two) -> None:
    ran: list[int] = []

    async def scenario() -> None:
        loop = two.world.loop
        for number in range(50):
            loop.call_later(1, ran.append, number)
        for timer in [loop.call_later(2, ran.append, -1) for _ in range(500)]:
            timer.cancel()
        await asyncio.sleep(5)

    two.play(scenario)
    assert sorted(ran) == list(range(50))


def hand_overs(seed: int, count: int) -> list[tuple[int, float]]:
    """Pass `count` numbers to the second loop of a process, one each second; return them in the order of arrival."""
    world = SimWorld(seed)
    beside = world.runtime("a process", MemoryDisk()).beside()
    arrived: list[tuple[int, float]] = []

    def hand_over(number: int) -> None:
        assert beside.call_there is not None
        beside.call_there(lambda: arrived.append((number, world.loop.time() - number)))

    async def run() -> None:
        for number in range(count):
            world.loop.call_at(number, hand_over, number)
        await asyncio.sleep(count + LONGEST_HAND_OVER_SECONDS)

    world.loop.run_until_complete(run())
    world.end()
    return arrived


@pytest.mark.slow
def test_a_hand_over_is_long_now_and_then() -> None:
    arrived = hand_overs(1, 20_000)
    assert [number for number, _ in arrived] == list(range(20_000))
    seconds = [taken for _, taken in arrived]
    assert max(seconds) <= LONGEST_HAND_OVER_SECONDS
    assert sum(taken <= 0.001 for taken in seconds) > 0.99 * len(seconds)
    assert sum(0.001 < taken <= 0.2 for taken in seconds) > 50
    assert sum(taken > 0.2 for taken in seconds) > 2
    assert arrived == hand_overs(1, 20_000)


def test_a_hand_over_behind_a_long_one_waits_for_it() -> None:
    world = SimWorld(1)
    process = world.runtime("a process", MemoryDisk())
    beside = process.beside()
    call_there, call_back = beside.call_there, beside.call_back
    assert call_there is not None
    assert call_back is not None
    assert process.second is not None
    takes = iter((2.0, 0.0))
    process.second.latencies.hand_over_seconds = lambda: next(takes)  # type: ignore[method-assign]
    arrived: list[str] = []

    async def run() -> None:
        call_there(lambda: arrived.append("first"))
        call_there(lambda: arrived.append("second"))
        call_back(lambda: arrived.append("of the other direction"))
        await asyncio.sleep(3)

    world.loop.run_until_complete(run())
    world.end()
    assert arrived == ["of the other direction", "first", "second"]
