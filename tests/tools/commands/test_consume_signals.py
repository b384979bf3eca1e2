"""`pykbroker consume` at signals: the first ends the read, and the second ends the command at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pykbroker.tools.cluster.delivered_records import DeliveredRecord
from pykbroker.tools.cluster.share_group_reader import ShareGroupReader
from pykbroker.tools.commands import consume


class Interrupted(ShareGroupReader):
    """A reader during whose read SIGINT comes, as often as wanted."""

    def __init__(self, interrupts: int, *, at_close: int = 0) -> None:
        self._interrupts = interrupts
        self._at_close = at_close
        self.stops = 0
        self.closed_with: list[bool] = []

    def batches(self) -> Iterator[list[DeliveredRecord]]:
        yield []
        for _ in range(self._interrupts):
            signal.raise_signal(signal.SIGINT)

    def stop(self) -> None:
        self.stops += 1

    def close(self, *, printed_all: bool = True) -> None:
        for _ in range(self._at_close):
            signal.raise_signal(signal.SIGINT)
        self.closed_with.append(printed_all)


def printed(reader: Interrupted) -> int:
    return consume._print_all(reader, lambda record: b"")


def test_the_first_interrupt_ends_the_read_and_closes_the_reader() -> None:
    before = signal.getsignal(signal.SIGINT)
    reader = Interrupted(1)
    assert printed(reader) == 128 + signal.SIGINT
    assert (reader.stops, reader.closed_with) == (1, [True])
    assert signal.getsignal(signal.SIGINT) == before


@pytest.mark.parametrize(("during_read", "at_close"), [(2, 0), (1, 1)])
def test_the_second_interrupt_ends_the_command_at_once(during_read: int, at_close: int) -> None:
    before = signal.getsignal(signal.SIGINT)
    reader = Interrupted(during_read, at_close=at_close)
    with pytest.raises(KeyboardInterrupt):
        printed(reader)
    assert (reader.stops, reader.closed_with) == (1, [])
    assert signal.getsignal(signal.SIGINT) == before
