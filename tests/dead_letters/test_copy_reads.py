"""The reads of the source log are divided among the brokers that get the letters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pykbroker.dead_letters.copy_reads import MOST_HELD_BYTES, MOST_READS, CopyReads


class Order(SimpleNamespace):
    """An order, as far as the reads know it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


def order(node_id: int) -> Any:
    return Order(place=SimpleNamespace(node_id=node_id), held_bytes=0, held_by=-1)


def test_one_read_at_a_time_is_under_way_for_a_broker() -> None:
    copies = CopyReads()
    for node_id in (1, 1, 2, 2):
        copies.add(order(node_id))
    begun = copies.begin()
    assert [each.place.node_id for each in begun] == [1, 2]
    assert copies.begin() == []
    copies.ended(begun[0])
    assert [each.place.node_id for each in copies.begin()] == [1]


def test_brokers_that_hang_hold_one_read_more_each() -> None:
    copies = CopyReads()
    brokers = range(MOST_READS + 2)
    for _ in range(3):
        for node_id in brokers:
            copies.add(order(node_id))
    held = dict.fromkeys(brokers, 0)
    while begun := copies.begin():
        for each in begun:
            copies.hold(each, MOST_HELD_BYTES)
            copies.ended(each)
            held[each.place.node_id] += 1
    assert set(held.values()) == {1}
