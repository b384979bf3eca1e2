"""The verdict of a probe: with real sockets, and with scripted connections for rare outcomes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.liveness.prober import PATIENCE_SECONDS, TRIES, PortVerdict, Prober, RunningProbes
from pykbroker.runtime import OsRuntime
from pykbroker_worlds.simulated.world import SimWorld

PEER = ("localhost", 9092)


class Scripted:
    """A runtime with scripted connections: an error, None for a connection that lasts, "reset" for one that does not,
    or "silent"."""

    def __init__(self, *outcomes: Exception | str | None) -> None:
        self.world = SimWorld(1)
        self.loop = self.world.loop
        self.outcomes = list(outcomes)

    def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            self.loop.call_soon(future.set_exception, outcome)
        elif outcome != "silent":
            protocol = factory()
            protocol.connection_made(Transport())
            self.loop.call_soon(future.set_result, (None, protocol))
            if outcome == "reset":
                self.loop.call_later(0.001, protocol.connection_lost, None)
        return future


class Transport(asyncio.Transport):
    def abort(self) -> None:
        pass


def verdict_of(*outcomes: Exception | str | None) -> tuple[PortVerdict, float, int]:
    """Return the verdict of a probe, its time, and how many of the connections it left untried."""
    runtime = Scripted(*outcomes)

    async def ask() -> PortVerdict:
        said: asyncio.Future[PortVerdict] = runtime.loop.create_future()
        Prober(runtime).begin(PEER, said.set_result)  # type: ignore[arg-type]
        return await said

    verdict = runtime.loop.run_until_complete(ask())
    took = runtime.loop.time()
    runtime.loop.close()
    return verdict, took, len(runtime.outcomes)


REFUSED = ConnectionRefusedError("refused")


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        ((REFUSED,), PortVerdict.REFUSED),
        ((None,), PortVerdict.ACCEPTED),
        ((OSError(113, "No route to host"),), PortVerdict.SILENT),
        (("silent",), PortVerdict.SILENT),
        # A process that ends: some of its sockets are closed, the port is not yet.
        (("reset", REFUSED), PortVerdict.REFUSED),
        ((ConnectionResetError("reset"), "reset", REFUSED), PortVerdict.REFUSED),
        # Something that takes connections and ends them is there.
        (("reset",) * TRIES, PortVerdict.ACCEPTED),
        (("reset", None), PortVerdict.ACCEPTED),
    ],
)
def test_verdict(outcomes: tuple[Exception | str | None, ...], verdict: PortVerdict) -> None:
    said, took, left = verdict_of(*outcomes)
    assert said is verdict
    assert not left
    assert took <= PATIENCE_SECONDS


def test_real_sockets_accept_and_refuse() -> None:
    async def ask() -> list[PortVerdict]:
        runtime = OsRuntime(asyncio.get_running_loop())
        found: list[PortVerdict] = []
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            port = listening.getsockname()[1]
            found.append(await probe(runtime, port))
        found.append(await probe(runtime, port))
        runtime.close()
        return found

    async def probe(runtime: OsRuntime, port: int) -> PortVerdict:
        said: asyncio.Future[PortVerdict] = runtime.loop.create_future()
        Prober(runtime).begin(("127.0.0.1", port), said.set_result)
        return await said

    assert asyncio.run(ask()) == [PortVerdict.ACCEPTED, PortVerdict.REFUSED]


class Part:
    """A part that probes, and what it has found."""

    def __init__(self, runtime: Any) -> None:
        self.probes: RunningProbes[str] = RunningProbes(Prober(runtime))
        self.found: list[tuple[str, PortVerdict]] = []
        #: probes that ran while a verdict came
        self.running: list[int] = []

    def probe(self, key: str, name: str) -> None:
        def found(verdict: PortVerdict) -> None:
            self.found.append((name, verdict))
            self.running.append(len(self.probes))

        self.probes.begin(key, PEER, found)


def part_after(play: Callable[[Part], object], *outcomes: Exception | str | None) -> Part:
    """The part after `play`, and after time for a probe to end."""
    runtime = Scripted(*outcomes)
    part = Part(runtime)

    async def whole() -> None:
        play(part)
        await asyncio.sleep(2 * PATIENCE_SECONDS)

    runtime.loop.run_until_complete(whole())
    runtime.loop.close()
    return part


def test_probes_of_a_part_run_until_their_verdicts() -> None:
    def play(part: Part) -> None:
        part.probe("a", "one")
        part.probe("b", "other")
        assert "a" in part.probes
        assert "c" not in part.probes

    part = part_after(play, REFUSED, "silent")
    assert part.found == [("one", PortVerdict.REFUSED), ("other", PortVerdict.SILENT)]
    assert part.running == [1, 0]


@pytest.mark.parametrize("end", [lambda probes: probes.end("a"), lambda probes: probes.close()])
def test_a_probe_that_is_ended_has_no_verdict(end: Callable[[RunningProbes[str]], object]) -> None:
    def play(part: Part) -> None:
        part.probe("a", "one")
        end(part.probes)
        assert not part.probes
        # Nor is it an error to end what has ended.
        end(part.probes)

    assert part_after(play, REFUSED).found == []


def test_a_probe_takes_the_place_of_an_earlier_one_of_its_key() -> None:
    def play(part: Part) -> None:
        part.probe("a", "first")
        part.probe("a", "second")

    assert part_after(play, REFUSED, None).found == [("second", PortVerdict.ACCEPTED)]
