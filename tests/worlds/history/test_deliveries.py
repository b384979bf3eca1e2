"""Each check of deliveries finds the violation that is made by hand, and nothing in a history without one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pykbroker_wire.records.control import ControlType
from pykbroker_worlds.history.checks import Violation, insist, of_share_groups
from pykbroker_worlds.history.deliveries import Excused, GroupPlace, Start, the_dead_are_lettered
from pykbroker_worlds.history.events import OK, Acknowledged, Batch, Delivered, History, Log, Place, ShareReset

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
        self.starts = {(ALL, PLACE): Start(0, False), (COMMITTED, PLACE): Start(0, True)}
        self.excused: dict[GroupPlace, Excused] = {}
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

    def reset(self, group: str, offset: int | None) -> ShareReset:
        fields = {"group": group, "place": PLACE, "offset": offset}
        return self.history.record(ShareReset(started=self.history.now(), code=OK, client="a", **fields))  # type: ignore[arg-type]

    def check(self) -> None:
        insist(*of_share_groups(self.history, {PLACE: self.log}, self.starts, self.excused))


def _marker(offset: int, kind: ControlType) -> Batch:
    return Batch(base_offset=offset, last_offset=offset, producer_id=7, is_transactional=True, marker=kind)


def test_a_story_without_a_violation() -> None:
    Story().check()


def test_a_record_at_the_delivery_limit_or_before_the_first_offset_need_not_come() -> None:
    story = Story()
    story.log.append(Batch(base_offset=5, last_offset=5, values=(b"d",)))
    story.excused = {(ALL, PLACE): Excused(exhausted={5})}
    story.starts[COMMITTED, PLACE] = Start(6, True)
    story.check()


def test_records_that_were_deleted_later_are_no_violation() -> None:
    story = Story()
    del story.log[0]
    story.starts = {(ALL, PLACE): Start(1, False), (COMMITTED, PLACE): Start(1, True)}
    story.check()


def test_an_answer_that_was_under_way_may_bring_what_was_acknowledged_meanwhile() -> None:
    story = Story()
    story.give(COMMITTED, (0, b"a")).started = 0
    story.acknowledge(COMMITTED, 3, ACCEPT, code=None)
    story.give(COMMITTED, (3, b"c"))
    story.check()


@pytest.mark.parametrize("offset", [0, None])
def test_what_was_acknowledged_comes_again_after_a_reset(offset: int | None) -> None:
    story = Story()
    began = story.reset(COMMITTED, offset)
    story.give(COMMITTED, (0, b"a"), (3, b"c"))
    story.starts[COMMITTED, PLACE] = Start(0, True, since=began.started)
    story.check()


def test_a_reset_to_a_later_offset_skips_records() -> None:
    story = Story()
    story.log.append(Batch(base_offset=5, last_offset=5, values=(b"d",)))
    since = story.reset(ALL, 6).started
    story.give(COMMITTED, (5, b"d"))
    story.starts[ALL, PLACE] = Start(6, False, since)
    story.check()


def _not_again_after_a_reset(story: Story) -> None:
    story.starts[ALL, PLACE] = Start(1, False, since=story.reset(ALL, 1).started)
    story.give(ALL, (1, b"b"))


def _again_before_the_offset_of_a_reset(story: Story) -> None:
    story.reset(COMMITTED, 1)
    story.give(COMMITTED, (0, b"a"))


def _again_after_the_reset_of_another_group(story: Story) -> None:
    story.reset(ALL, 0)
    story.give(COMMITTED, (0, b"a"))


def _again_after_two_acknowledgements(story: Story) -> None:
    story.reset(COMMITTED, 0)
    story.give(COMMITTED, (0, b"a"))
    story.acknowledge(COMMITTED, 0, ACCEPT)
    story.give(COMMITTED, (0, b"a"))


def test_a_leader_that_does_not_know_its_successor_may_give_what_was_acknowledged() -> None:
    story = Story()
    _acknowledged(story)
    story.excused = {(COMMITTED, PLACE): Excused(late={("m", 0)})}
    story.check()


def test_an_acknowledgement_that_was_ignored_ends_nothing() -> None:
    story = Story()
    _acknowledged(story)
    story.excused = {(COMMITTED, PLACE): Excused(ignored={("m", 0)})}
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
    (_not_again_after_a_reset, "delivered_at_least_once"),
    (_again_before_the_offset_of_a_reset, "the_acknowledged_never_come_again"),
    (_again_after_the_reset_of_another_group, "the_acknowledged_never_come_again"),
    (_again_after_two_acknowledgements, "the_acknowledged_never_come_again"),
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
    found = list(the_dead_are_lettered({key: {3}}, letters, {key: given_up}))
    assert bool(found) is is_found
