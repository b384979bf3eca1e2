"""When a TLS layer reads: each reason pauses the transport, and a turn has an end."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any, cast

from pykbroker.tls.paced_reading import TURN_SECONDS, PacedReading
from tests.net.fakes import FakeLoop, FakeTransport


class Below(FakeTransport):
    def is_closing(self) -> bool:
        return self.closed


def reading_of(loop: FakeLoop, below: FakeTransport) -> PacedReading:
    reading = PacedReading(cast(asyncio.AbstractEventLoop, loop))
    reading.attach(cast(Any, below))
    return reading


def test_nothing_is_read_while_one_reason_holds() -> None:
    below = Below()
    reading = reading_of(FakeLoop(), below)
    for wanted, stepping, put_off in product((True, False), repeat=3):
        reading.is_wanted, reading.is_stepping, reading.is_put_off = wanted, stepping, put_off
        # FakeTransport fails if it is paused or resumed twice.
        reading.update()
        reading.update()
        assert below.reading is (wanted and not stepping and not put_off)


def test_a_transport_that_is_lost_is_left_alone() -> None:
    below = Below()
    reading = reading_of(FakeLoop(), below)
    reading.detach()
    reading.is_wanted = False
    reading.update()
    assert below.reading


def test_reads_that_fill_the_buffer_belong_to_one_turn() -> None:
    loop = FakeLoop()
    reading = reading_of(loop, FakeTransport())
    reading.received(filled=True)
    loop.now += TURN_SECONDS * 0.75
    reading.received(filled=True)
    assert not reading.is_turn_over()
    loop.now += TURN_SECONDS * 0.75
    reading.received(filled=False)
    assert reading.is_turn_over()
    # The last read did not fill the buffer, so the next one begins a turn.
    reading.received(filled=False)
    assert not reading.is_turn_over()
