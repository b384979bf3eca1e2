"""The replica from which a consumer reads."""

from __future__ import annotations

import pytest

from tests.replica.test_leader import Cluster

RACKS = {1: "east", 2: "west", 3: "west", 4: "north"}


class Racks(Cluster):
    """Broker 1 leads, and its log ends at 10. All followers have all records."""

    def __init__(self, isr: tuple[int, ...] = (1, 2, 3, 4)) -> None:
        super().__init__((1, 2, 3, 4), isr)
        self.racks = dict(RACKS)
        for number in (2, 3, 4):
            self.fetch(number, 10, 10)

    def choose(self, rack: str, offset: int = 5) -> int | None:
        return self.leader.preferred_replica(1, offset, rack, self.racks.get)


def test_a_replica_in_the_consumers_rack_is_chosen() -> None:
    assert Racks().choose("north") == 4


def test_the_leader_is_chosen_in_its_own_rack_and_where_no_replica_stands() -> None:
    racks = Racks()
    racks.racks[2] = "east"
    assert (racks.choose("east"), racks.choose("south")) == (None, None)


def test_the_replica_that_has_most_is_chosen_then_the_one_that_kept_up_last_then_the_highest_id() -> None:
    racks = Racks()
    assert racks.choose("west") == 3
    racks.fetch(2, 10, 10, steady_ms=5)
    assert racks.choose("west") == 2
    racks.fetch(3, 11, 12, steady_ms=5)
    assert racks.choose("west") == 3


@pytest.mark.parametrize("why", ["not in sync", "has less", "begins later", "cannot be reached"])
def test_a_replica_that_cannot_serve_the_offset_is_not_chosen(why: str) -> None:
    racks = Racks()
    assert racks.choose("north") == 4
    match why:
        case "not in sync":
            racks.change(isr=(1, 2, 3))
        case "has less":
            racks.fetch(4, 4, 10)
        case "begins later":
            racks.fetch(4, 10, 10, log_start_offset=6)
        case _:
            del racks.racks[4]
    assert racks.choose("north") is None


def test_a_replica_serves_its_first_and_its_end_offset() -> None:
    racks = Racks()
    racks.fetch(4, 10, 10, log_start_offset=6)
    assert [racks.choose("north", offset) for offset in (5, 6, 10, 11)] == [None, 4, 4, None]
