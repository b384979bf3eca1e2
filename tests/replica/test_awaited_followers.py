"""When a leader epoch begins, its followers ask for the partition at once, and not after the end of a long poll."""

from __future__ import annotations

import asyncio

from pykbroker.replica.awaited_followers import AWAITED_SECONDS, SHORT_SECONDS, AwaitedFollowers
from pykbroker_worlds.simulated.loop import VirtualLoop


class LongPoll:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[object] = loop.create_future()

    def end(self) -> None:
        self.future.set_result("with what there is")


def test_a_fetch_that_is_parked_ends_when_a_leader_epoch_begins() -> None:
    loop = VirtualLoop()
    awaited = AwaitedFollowers(loop)
    mine, answered, other = LongPoll(loop), LongPoll(loop), LongPoll(loop)
    for follower, parked in ((2, mine), (2, answered), (3, other)):
        awaited.park(follower, parked)
    answered.end()

    async def play() -> None:
        await asyncio.sleep(0.001)
        awaited.expect([2])
        awaited.expect([2])
        assert not mine.future.done()
        await asyncio.sleep(0.001)

    loop.run_until_complete(play())
    assert mine.future.done()
    assert not other.future.done()
    loop.close()


def test_fetches_are_short_until_the_follower_must_have_heard() -> None:
    loop = VirtualLoop()
    awaited = AwaitedFollowers(loop)
    awaited.expect([2])
    assert awaited.wait_seconds(2, 0.5) == SHORT_SECONDS
    assert awaited.wait_seconds(2, 0.0) == 0.0
    assert awaited.wait_seconds(3, 0.5) == 0.5
    loop.run_until_complete(asyncio.sleep(AWAITED_SECONDS))
    assert awaited.wait_seconds(2, 0.5) == 0.5
    loop.close()


def test_numbers_of_followers_that_clients_name_do_not_stay() -> None:
    loop = VirtualLoop()
    awaited = AwaitedFollowers(loop)
    parked = [LongPoll(loop) for _ in range(100)]
    for number, each in enumerate(parked):
        awaited.park(number, each)
    for each in parked:
        each.end()
    loop.run_until_complete(asyncio.sleep(0))
    assert not awaited._parked
    loop.close()
