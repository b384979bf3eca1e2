"""Each check of deliveries finds the violation that is made by hand, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykbroker_wire.records.control import ControlType
from tests.simulation.history.checks import Violation, insist, of_share_groups
from tests.simulation.history.deliveries import GroupPlace, the_rejected_are_dead_lettered
from tests.simulation.history.events import OK, Acknowledged, Batch, Delivered, History, Log, Place

PLACE: Place = ("t", 0)
ALL, COMMITTED = "all", "committed"
ACCEPT, RELEASE = 1, 2


class Story:
    """A log with a record without transaction, an aborted one and a committed one, and two groups that read it."""

    def __init__(self) -> None:
        self.history = History()
        self.log: Log = [
            Batch(base_offset=0, last_offset=0, values=(b"a",)),
            Batch(base_offset=1, last_offset=1, producer_id=7, is_transactional=True, values=(b"b",)),
            _marker(2, ControlType.ABORT),
            Batch(base_offset=3, last_offset=3, producer_id=7, is_transactional=True, values=(b"c",)),
            _marker(4, ControlType.COMMIT),
        ]
        self.starts: dict[GroupPlace, tuple[int, bool]] = {(ALL, PLACE): (0, False), (COMMITTED, PLACE): (0, True)}
        self.excused: dict[GroupPlace, set[int]] = {}
        self.give(ALL, (0, b"a"), (1, b"b"), (3, b"c"))
        self.give(COMMITTED, (0, b"a"))
        self.acknowledge(COMMITTED, 0, RELEASE)
        self.give(COMMITTED, (0, b"a"), (3, b"c"))
        self.acknowledge(COMMITTED, 0, ACCEPT)

    def give(self, group: str, *records: tuple[int, bytes]) -> Delivered:
        ranges = tuple((offset, offset, 1) for offset, _ in records)
        fields = {"group": group, "member": "m", "place": PLACE, "ranges": ranges, "records": records}
        return self.history.record(Delivered(started=self.history.now(), code=OK, client="c", **fields))  # type: ignore[arg-type]

    def acknowledge(self, group: str, offset: int, kind: int, code: int | None = OK) -> None:
        event = Acknowledged(
            started=self.history.now(),
            code=code,
            client="c",
            group=group,
            member="m",
            place=PLACE,
            types=((offset, kind),),
        )
        self.history.record(event)

    def check(self) -> None:
        insist(*of_share_groups(self.history, {PLACE: self.log}, self.starts, self.excused))


def _marker(offset: int, kind: ControlType) -> Batch:
    return Batch(base_offset=offset, last_offset=offset, producer_id=7, is_transactional=True, marker=kind)


def test_a_story_without_a_violation() -> None:
    Story().check()


def test_a_record_at_the_delivery_limit_or_before_the_first_offset_need_not_come() -> None:
    story = Story()
    story.log.append(Batch(base_offset=5, last_offset=5, values=(b"d",)))
    story.excused = {(ALL, PLACE): {5}}
    story.starts[COMMITTED, PLACE] = (6, True)
    story.check()


def test_records_that_were_deleted_later_are_no_violation() -> None:
    story = Story()
    del story.log[0]
    story.starts = {(ALL, PLACE): (1, False), (COMMITTED, PLACE): (1, True)}
    story.check()


def test_an_answer_that_was_under_way_may_bring_what_was_acknowledged_meanwhile() -> None:
    story = Story()
    story.give(COMMITTED, (0, b"a")).started = 0
    story.acknowledge(COMMITTED, 3, ACCEPT, code=None)
    story.give(COMMITTED, (3, b"c"))
    story.check()


def _never_delivered(story: Story) -> None:
    story.log.append(Batch(base_offset=5, last_offset=5, values=(b"d",)))


def _aborted(story: Story) -> None:
    story.give(COMMITTED, (1, b"b"))


def _another_value(story: Story) -> None:
    story.give(ALL, (0, b"z"))


def _acknowledged(story: Story) -> None:
    story.give(COMMITTED, (0, b"a"))


VIOLATIONS: list[tuple[Callable[[Story], None], str]] = [
    (_never_delivered, "delivered_at_least_once"),
    (_aborted, "nothing_else_is_delivered"),
    (_another_value, "nothing_else_is_delivered"),
    (_acknowledged, "the_acknowledged_never_come_again"),
]


@pytest.mark.parametrize(("violate", "check"), VIOLATIONS, ids=[each.__name__.strip("_") for each, _ in VIOLATIONS])
def test_a_violation_is_found(violate: Callable[[Story], None], check: str) -> None:
    story = Story()
    violate(story)
    with pytest.raises(Violation, match=f"^{check}: "):
        story.check()


@pytest.mark.parametrize(
    ("letters", "given_up", "is_found"),
    [
        ({(ALL, PLACE, 3)}, set(), False),
        (set(), {3}, False),
        (set(), set(), True),
        ({(COMMITTED, PLACE, 3)}, {0}, True),
    ],
)
def test_a_rejected_record_has_a_dead_letter(
    letters: set[tuple[str, Place, int]], given_up: set[int], *, is_found: bool
) -> None:
    key = (ALL, PLACE)
    found = list(the_rejected_are_dead_lettered({key: {3}}, letters, {key: given_up}))
    assert bool(found) is is_found
