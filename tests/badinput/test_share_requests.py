"""Hostile members of share groups on a whole node: long lists of acknowledgements, and more sessions than there may be.

A request of a member never keeps the loop for long. Every refusal has an error of Apache Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.share_acknowledge import ShareAcknowledgeRequest
from testkit.nodes.share_members import ShareMembers, share_members
from testkit.nodes.sim import Play, Sim, playing
from testkit.share_requests import ACCEPT, Ack
from testkit.simulated_clients import Client
from tests.badinput.cost import Lines, Meter, counted_lines, is_short

ONE = {"share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.min.isr": "1"}
RANGES = 100_000
#: CPU seconds of one turn on a quiet machine, without the encoding of the request by the client and its decoding by
#: the node
MOST_TURN_SECONDS = 0.1
_TRIES = 3
NONE = ErrorCode.NONE
LISTS: dict[str, tuple[list[Ack], ErrorCode]] = {
    "before the start": ([(offset, offset, ACCEPT) for offset in range(RANGES)], NONE),
    "after the end": (
        [(RANGES + each, RANGES + each, ACCEPT) for each in range(RANGES)],
        ErrorCode.INVALID_RECORD_STATE,
    ),
    "of one record": ([(RANGES, RANGES, ACCEPT)] * RANGES, ErrorCode.INVALID_RECORD_STATE),
    "descending": ([(-each, -each, ACCEPT) for each in range(RANGES)], ErrorCode.INVALID_REQUEST),
}


@pytest.fixture
def play() -> Iterator[Play]:
    with playing(ONE) as run:
        yield run


@pytest.fixture
def lines() -> Iterator[Lines]:
    with counted_lines() as found:
        yield found


@pytest.mark.slow
def test_100000_acknowledged_ranges_take_turns(play: Play, lines: Lines) -> None:
    async def scenario(sim: Sim) -> None:
        group = await share_members(sim, start=RANGES)
        await group.fetch(0, max_wait_ms=0)
        meter = Meter(sim, lines)
        epoch = 1
        for what, (ranges, code) in LISTS.items():
            longest: list[float] = []
            for _ in range(_TRIES):
                longest.append(await longest_turn(meter, group, what, ranges, code, epoch))
                epoch += 1
                if is_short(longest[-1], MOST_TURN_SECONDS):
                    break
            else:
                raise AssertionError(f"{what}: {longest}")
            await meter.is_served()

    play(scenario, {})


async def longest_turn(
    meter: Meter, group: ShareMembers, what: str, ranges: list[Ack], code: ErrorCode, epoch: int
) -> float:
    """Return the CPU seconds of the longest turn for a request with these ranges, whose answer has this error."""
    request = group.acknowledges({0: ranges}, epoch=epoch)
    before = time.thread_time()
    body = b"".join(request.encode(request.MAX_VERSION))
    encoded = time.thread_time()
    ShareAcknowledgeRequest.decode(body, 0, request.MAX_VERSION)
    decoded = time.thread_time()

    async def ask() -> None:
        answer = await group.sim.call(request)
        assert answer.error_code == NONE
        assert [each.error_code for topic in answer.responses for each in topic.partitions] == [code]

    cost = await meter.of(what, ask)
    return cost.longest_turn - max(encoded - before, decoded - encoded)


def test_sessions_are_bounded(play: Play) -> None:
    """A member without a session waits as long as its fetch may, so that it does not ask again at once. Members that
    have one are served, and may open theirs anew. The end of a connection makes room."""

    async def scenario(sim: Sim) -> None:
        group = await share_members(sim)
        await sim.send("t", b"a", b"b")
        for number in range(3):
            assert (await group.fetch(0, member_id=f"m{number}", max_records=0)).error_code == NONE
        begin = sim.sim_world.loop.time()
        refused = await group.fetch(0, member_id="hostile", max_wait_ms=2_000)
        assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert sim.sim_world.loop.time() - begin >= 2
        assert (await group.fetch(0, member_id="m0", max_records=0)).error_code == NONE
        assert await group.acquire(epoch=1, member_id="m1") == {0: [(0, 1, 1)]}
        other = Client(sim.sim_world, "other")
        refused = await group.fetch(0, client=other, member_id="hostile", max_wait_ms=0)
        assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        sim._connection.close()
        answer = await group.fetch(0, client=other, member_id="other", max_wait_ms=2_000)
        while answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            answer = await group.fetch(0, client=other, member_id="other", max_wait_ms=2_000)
        assert answer.error_code == NONE
        assert len(sim.node.services.share_leaders.sessions) == 1

    play(scenario, {"group.share.max.share.sessions": "3", "group.share.max.size": "3"})
