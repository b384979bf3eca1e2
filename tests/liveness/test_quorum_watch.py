"""The watch finds that no controller can be elected, because most voters refuse connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pykbroker.liveness.prober import Prober
from pykbroker.liveness.quorum_watch import EVERY_SECONDS, FIRST_SECONDS, RESTART_SECONDS, QuorumWatch
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet
from pykbroker_worlds.simulated.world import SimWorld


class Ports:
    """A runtime where the ports in `refusing` refuse and all others are silent."""

    def __init__(self) -> None:
        self.loop = SimWorld(1).loop
        self.refusing: set[int] = set()
        self.asked: list[int] = []

    def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self.loop.create_future()
        self.asked.append(port)
        if port in self.refusing:
            future.set_exception(ConnectionRefusedError("refused"))
        return future


def voters(*numbers: int) -> VoterSet:
    return VoterSet.of(VoterNode(ReplicaKey(number), (Endpoint("C", "localhost", number),)) for number in numbers)


def watched(
    ports: Ports, of: VoterSet, node_id: int, seconds: float, has_heirs: Callable[[], bool] = lambda: False
) -> tuple[bool, float]:
    """Return True if the watch finds that no controller can be elected, and the time of that or of the timeout."""

    async def wait() -> tuple[bool, float]:
        said = asyncio.Event()
        watch = QuorumWatch(ports, Prober(ports), node_id, lambda: of, has_heirs, said.set)  # type: ignore[arg-type]
        try:
            await asyncio.wait_for(said.wait(), seconds)
        except TimeoutError:
            return False, ports.loop.time()
        finally:
            watch.close()
        return True, ports.loop.time()

    return ports.loop.run_until_complete(wait())


@pytest.mark.parametrize(
    ("of", "node_id", "refusing", "is_gone"),
    [
        ((1, 2, 3), 3, {1, 2}, True),
        # This voter and another one elect a leader.
        ((1, 2, 3), 3, {1}, False),
        # A broker without a vote: two voters are a majority, one is not.
        ((1, 2, 3), 9, {1}, False),
        ((1, 2, 3), 9, {1, 3}, True),
        ((1,), 9, {1}, True),
        ((1,), 1, set(), False),
        ((1, 2, 3, 4), 1, {3, 4}, True),
        # Not known yet, or not to be known.
        ((), 9, set(), False),
    ],
)
def test_a_majority_that_refuses(of: tuple[int, ...], node_id: int, refusing: set[int], is_gone: bool) -> None:
    ports = Ports()
    ports.refusing = refusing
    said, _ = watched(ports, voters(*of), node_id, 20.0)
    assert said is is_gone
    assert node_id not in ports.asked


def test_it_asks_again_until_they_refuse() -> None:
    ports = Ports()
    ports.loop.call_later(5.0, ports.refusing.update, {1, 2})
    said, when = watched(ports, voters(1, 2, 3), 3, 20.0)
    assert said
    # The round that ran then had a second for each silent voter.
    assert 5.0 < when <= 6.0 + 2 * EVERY_SECONDS


def test_a_controller_that_answers_at_once_is_not_probed() -> None:
    ports = Ports()
    assert watched(ports, voters(1, 2, 3), 3, FIRST_SECONDS / 2) == (False, FIRST_SECONDS / 2)
    assert ports.asked == []


def test_a_broker_whose_partitions_others_could_lead_waits_for_voters_that_restart() -> None:
    """Two of three controllers restart together. They refuse connections for longer than one round."""
    ports = Ports()
    ports.refusing = {1, 2}
    ports.loop.call_later(RESTART_SECONDS - 1, ports.refusing.clear)
    said, _ = watched(ports, voters(1, 2, 3), 9, 20.0, lambda: True)
    assert not said


def test_it_goes_when_the_voters_stay_away() -> None:
    ports = Ports()
    ports.refusing = {1, 2, 3}
    said, when = watched(ports, voters(1, 2, 3), 9, 20.0, lambda: True)
    assert said
    assert FIRST_SECONDS + RESTART_SECONDS <= when <= FIRST_SECONDS + RESTART_SECONDS + 2 * EVERY_SECONDS


def test_it_goes_as_soon_as_no_other_broker_could_lead() -> None:
    ports = Ports()
    ports.refusing = {1, 2, 3}
    said, when = watched(ports, voters(1, 2, 3), 9, 20.0, lambda: ports.loop.time() < 2)
    assert said
    assert 2 <= when <= 2 + 2 * EVERY_SECONDS
