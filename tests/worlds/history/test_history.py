"""Each checker finds the violation that is planted for it, and nothing in a run without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.control import ControlType
from pykbroker_worlds.history import isolation, offsets, ownership, writes
from pykbroker_worlds.history.checks import Violation, insist, of_groups, of_offsets, of_transactions
from pykbroker_worlds.history.events import (
    OK,
    Batch,
    Beat,
    CommittedOffset,
    Ended,
    FetchedOffset,
    Forgot,
    History,
    Identified,
    Joined,
    Log,
    Place,
    Produced,
    Read,
    Synced,
)

A: Place = ("a", 0)
B: Place = ("b", 0)


class Story:
    """A run without faults: transaction t1 is committed, t2 aborted, on two partitions each, with offsets."""

    def __init__(self) -> None:
        self.history = History()
        self.logs: dict[Place, Log] = {A: [], B: []}
        self.stable: dict[Place, int] = {}
        add = self.add
        self.init = add(Identified, client="p", transactional_id="tid", producer_id=7, epoch=0)
        self.first = [self.produce(place, b"t1" + place[0].encode(), 0, "t1") for place in (A, B)]
        self.offset = self.commit_offset(5, "t1:5", "t1")
        self.commit = self.end("t1", 0, commit=True)
        self.second = [self.produce(place, b"t2" + place[0].encode(), 1, "t2") for place in (A, B)]
        self.aborted_offset = self.commit_offset(6, "t2:6", "t2")
        self.abort = self.end("t2", 1, commit=False)
        self.reads = [self.read(place, committed) for place in (A, B) for committed in (True, False)]
        self.fetched = add(FetchedOffset, client="f", group="g", place=A, offset=5, mark="t1:5")
        self.joined = add(Joined, group="g", member="m", generation=1, leader="m")
        self.synced = add(Synced, group="g", member="m", generation=1, partitions=frozenset({A}))
        self.beat = self.say("k", 0, 1, frozenset(), frozenset({A}))
        for place, log in self.logs.items():
            self.stable[place] = log[-1].last_offset + 1

    def add(self, kind: type[Any], **fields: Any) -> Any:
        return self.history.record(kind(**{"started": self.history.now(), "code": OK, **fields}))

    def produce(self, place: Place, value: bytes, epoch: int, transaction: str | None, **more: Any) -> Any:
        at = self.end_of(place)
        self.logs[place].append(
            Batch(
                base_offset=at,
                last_offset=at,
                producer_id=7,
                epoch=epoch,
                sequence=more.get("sequence", 0),
                is_transactional=transaction is not None,
                values=(value,),
            )
        )
        fields = {"place": place, "producer_id": 7, "epoch": epoch, "sequence": 0, "values": (value,)}
        return self.add(Produced, client="p", **fields, transaction=transaction, base_offset=at)

    def end_of(self, place: Place) -> int:
        log = self.logs[place]
        return log[-1].last_offset + 1 if log else 0

    def end(self, transaction: str, epoch: int, *, commit: bool) -> Any:
        for place in (A, B):
            self.mark(place, epoch + 1, commit=commit)
        fields = {"transactional_id": "tid", "producer_id": 7, "epoch": epoch, "commit": commit}
        return self.add(Ended, client="p", transaction=transaction, **fields)

    def mark(self, place: Place, epoch: int, *, commit: bool, coordinator_epoch: int = 3) -> None:
        at = self.end_of(place)
        self.logs[place].append(
            Batch(
                base_offset=at,
                last_offset=at,
                producer_id=7,
                epoch=epoch,
                is_transactional=True,
                marker=ControlType.COMMIT if commit else ControlType.ABORT,
                coordinator_epoch=coordinator_epoch,
                timestamp=100,
            )
        )

    def commit_offset(self, offset: int, mark: str, transaction: str | None = None, **more: Any) -> Any:
        fields = {"group": "g", "place": A, "offset": offset, "mark": mark, "transaction": transaction}
        return self.add(CommittedOffset, client="p", **fields, **more)

    def read(self, place: Place, committed: bool) -> Any:
        value = place[0].encode()
        records = ((0, b"t1" + value),) if committed else ((0, b"t1" + value), (2, b"t2" + value))
        fields = {"place": place, "committed_only": committed, "position": 0, "next_position": 4, "records": records}
        return self.add(Read, client="c", **fields, high_watermark=4, last_stable_offset=4)

    def say(
        self,
        member: str,
        sent: int,
        epoch: int,
        owned: frozenset[Place],
        assigned: frozenset[Place] | None,
        **more: Any,
    ) -> Any:
        fields = {"group": "k", "sent_epoch": sent, "epoch": epoch, "owned": owned, "assigned": assigned}
        return self.add(Beat, member=member, **fields, **more)

    def fetch_offset(self, offset: int, mark: str, *, stable: bool = False) -> Any:
        return self.add(FetchedOffset, client="f", group="g", place=A, offset=offset, mark=mark, stable=stable)


def test_a_story_without_faults_has_nothing_wrong() -> None:
    story = Story()
    insist(
        *of_transactions(story.history, story.logs, story.stable, epochs_rise=True),
        *of_groups(story.history),
        *of_offsets(story.history),
        writes.ends_in_time(story.logs, limit_ms=100),
        offsets.each_input_once([b"t1a", b"t1b"], story.logs),
    )


Plant = Callable[[Story], object]
Check = Callable[[Story], Iterator[str]]


def _twice(story: Story) -> None:
    story.logs[A].append(Batch(base_offset=4, last_offset=4, producer_id=9, epoch=0, sequence=0, values=(b"x",)))
    story.logs[A].append(Batch(base_offset=5, last_offset=5, producer_id=9, epoch=0, sequence=0, values=(b"y",)))


def _value_twice(story: Story) -> None:
    story.logs[A].append(Batch(base_offset=4, last_offset=4, producer_id=9, epoch=0, sequence=0, values=(b"t1a",)))


def _gap(story: Story) -> None:
    story.logs[A].append(Batch(base_offset=4, last_offset=4, producer_id=9, epoch=0, sequence=2, values=(b"x",)))


def _missing(story: Story) -> None:
    story.logs[A][0].values = (b"other",)


def _two_epochs(story: Story) -> None:
    story.produce(A, b"x", 2, "t3")
    story.produce(A, b"y", 3, "t3")


def _outside(story: Story) -> None:
    story.produce(A, b"x", 2, "t3")
    story.produce(A, b"y", 2, None)


def _old_epoch(story: Story) -> None:
    story.produce(A, b"x", 0, "t3")


def _marker_epoch(story: Story) -> None:
    story.logs[A][1].epoch = 0


def _coordinator_epoch(story: Story) -> None:
    story.mark(A, 2, commit=False, coordinator_epoch=2)


def _zombie_produces(story: Story) -> None:
    story.add(Identified, client="q", transactional_id="tid", producer_id=7, epoch=3)
    story.produce(A, b"x", 1, "t3")


def _zombie_commits(story: Story) -> None:
    story.add(Identified, client="q", transactional_id="tid", producer_id=7, epoch=3)
    story.end("t3", 1, commit=True)


def _epoch_given_twice(story: Story) -> None:
    story.add(Identified, client="q", transactional_id="tid", producer_id=7, epoch=0)


def _open(story: Story) -> None:
    story.produce(A, b"x", 2, "t3")


def _unstable(story: Story) -> None:
    story.stable[A] = 2


def _slow(story: Story) -> None:
    story.logs[A][1].timestamp = 101


def _read_aborted(story: Story) -> None:
    story.reads[0].records += ((2, b"t2a"),)


def _skipped(story: Story) -> None:
    story.reads[0].records = ()


def _changed(story: Story) -> None:
    story.reads[1].records = ((0, b"other"), (2, b"t2a"))


def _beyond(story: Story) -> None:
    story.reads[0].last_stable_offset = 3


def _too_early(story: Story) -> None:
    story.commit.started = story.commit.ended = 1_000


def _stable_goes_back(story: Story) -> None:
    story.add(
        Read,
        client="c",
        place=A,
        committed_only=True,
        position=0,
        next_position=0,
        records=(),
        high_watermark=4,
        last_stable_offset=2,
    )


def _torn(story: Story) -> None:
    story.logs[B][1].marker = ControlType.ABORT


def _lied(story: Story) -> None:
    for log in story.logs.values():
        log[1].marker = ControlType.ABORT


def _aborted_offset(story: Story) -> None:
    story.fetch_offset(6, "t2:6")


def _pending_offset(story: Story) -> None:
    story.commit_offset(7, "t3:7", "t3")
    story.fetch_offset(7, "t3:7")


def _lost_commit(story: Story) -> None:
    story.commit_offset(9, "9")
    story.fetch_offset(5, "t1:5")


def _lost_transaction(story: Story) -> None:
    story.fetch_offset(-1, "", stable=True)


def _lost_transaction_stable(story: Story) -> None:
    _commit_transaction(story)
    story.fetch_offset(5, "t1:5", stable=True)


def _lost_transaction_with_markers(story: Story) -> None:
    _commit_transaction(story)
    story.end("t4", 3, commit=False)
    story.fetch_offset(5, "t1:5")


def _lost_transaction_before_a_producer(story: Story) -> None:
    _commit_transaction(story)
    story.add(Identified, client="q", transactional_id="tid", producer_id=7, epoch=5)
    story.fetch_offset(5, "t1:5")


def _commit_transaction(story: Story) -> None:
    story.commit_offset(8, "t3:8", "t3")
    story.end("t3", 2, commit=True)


def _made_up(story: Story) -> None:
    story.fetch_offset(11, "11")


def _back(story: Story) -> None:
    story.fetch_offset(9, "")
    story.fetch_offset(8, "")


def _two_owners(story: Story) -> None:
    story.add(Synced, group="g", member="n", generation=1, partitions=frozenset({A}))


def _two_leaders(story: Story) -> None:
    story.add(Joined, group="g", member="n", generation=1, leader="n")


def _generation_back(story: Story) -> None:
    story.add(Joined, group="g", member="n", generation=0, leader="m")


def _written_generation_back(story: Story) -> None:
    story.add(Forgot, node=1)
    story.add(Joined, group="g", member="n", generation=0, leader="m")


def _old_commit(story: Story) -> None:
    story.add(Joined, group="g", member="n", generation=2, leader="n")
    story.commit_offset(9, "9", member="m", generation=1)


def _taken(story: Story) -> None:
    story.say("l", 0, 2, frozenset(), frozenset({A}))
    story.say("k", 1, 2, frozenset({A}), None)


def _member_epoch_back(story: Story) -> None:
    story.say("k", 1, 3, frozenset({A}), None)
    story.say("k", 3, 2, frozenset({A}), None)


def _put_out_commits(story: Story) -> None:
    story.say("k", 1, 0, frozenset({A}), None, code=int(ErrorCode.FENCED_MEMBER_EPOCH))
    story.add(CommittedOffset, group="k", place=A, offset=9, mark="9", member="k", generation=1)


def _output_twice(story: Story) -> None:
    story.logs[B].append(Batch(base_offset=4, last_offset=4, values=(b"t1a>again",)))


def _w(check: Callable[[dict[Place, Log]], Iterator[str]]) -> Check:
    return lambda story: check(story.logs)


def _h(check: Callable[[History], Iterator[str]]) -> Check:
    return lambda story: check(story.history)


def _hl(check: Callable[[History, dict[Place, Log]], Iterator[str]]) -> Check:
    return lambda story: check(story.history, story.logs)


def _epochs(story: Story) -> Iterator[str]:
    return writes.one_open_transaction(story.logs, epochs_rise=True)


def _hanging(story: Story) -> Iterator[str]:
    return writes.nothing_hangs(story.logs, story.stable)


PLANTED: list[tuple[Plant, Check]] = [
    (_twice, _w(writes.written_once)),
    (_value_twice, _w(writes.written_once)),
    (_gap, _w(writes.written_once)),
    (_missing, _hl(writes.acknowledged_is_there)),
    (_two_epochs, _epochs),
    (_outside, _epochs),
    (_old_epoch, _epochs),
    (_marker_epoch, _epochs),
    (_coordinator_epoch, _epochs),
    (_zombie_produces, _h(writes.fenced_stay_out)),
    (_zombie_commits, _h(writes.fenced_stay_out)),
    (_epoch_given_twice, _h(writes.epochs_are_given_once)),
    (_open, _hanging),
    (_unstable, _hanging),
    (_slow, lambda story: writes.ends_in_time(story.logs, limit_ms=100)),
    (_read_aborted, _hl(isolation.reads_are_exact)),
    (_skipped, _hl(isolation.reads_are_exact)),
    (_changed, _hl(isolation.reads_are_exact)),
    (_beyond, _hl(isolation.reads_are_exact)),
    (_too_early, _h(isolation.nothing_is_read_before_its_commit)),
    (_stable_goes_back, _h(isolation.stable_offsets_never_go_back)),
    (_torn, _hl(isolation.transactions_are_atomic)),
    (_lied, _hl(isolation.transactions_are_atomic)),
    (_aborted_offset, _hl(isolation.offsets_go_with_their_transaction)),
    (_pending_offset, _hl(isolation.offsets_go_with_their_transaction)),
    (_lost_commit, _h(offsets.commits_are_kept)),
    (_lost_transaction, _h(offsets.commits_are_kept)),
    (_lost_transaction_stable, _h(offsets.commits_are_kept)),
    (_lost_transaction_with_markers, _h(offsets.commits_are_kept)),
    (_lost_transaction_before_a_producer, _h(offsets.commits_are_kept)),
    (_made_up, _h(offsets.commits_are_kept)),
    (_back, _h(offsets.fetches_never_go_back)),
    (_two_owners, _h(ownership.one_owner_per_generation)),
    (_two_leaders, _h(ownership.one_leader_and_rising_generations)),
    (_generation_back, _h(ownership.one_leader_and_rising_generations)),
    (_written_generation_back, _h(ownership.written_generations_never_go_back)),
    (_old_commit, _h(ownership.old_generations_do_not_commit)),
    (_taken, _h(ownership.one_owner_at_a_time)),
    (_member_epoch_back, _h(ownership.member_epochs_rise)),
    (_put_out_commits, _h(ownership.the_put_out_do_not_commit)),
    (_output_twice, lambda story: offsets.each_input_once([b"t1a", b"t1b"], story.logs)),
]


def test_a_coordinator_that_was_replaced_begins_a_generation_that_its_successor_begins_too() -> None:
    story = Story()
    story.add(Joined, group="g", member="n", generation=1, leader="n").was_replaced = True
    assert list(ownership.one_leader_and_rising_generations(story.history)) == []


@pytest.mark.parametrize("is_put_out", [True, False])
def test_an_answer_that_was_decided_first_and_comes_last(is_put_out: bool) -> None:
    """A response that waited for a replica lets the member keep the partition; in the meantime another member has got
    it."""
    story = Story()
    asked = story.history.now()
    story.say("l", 0, 2, frozenset(), frozenset({A}))
    story.say("k", 1, 1, frozenset({A}), frozenset({A})).started = asked
    assert list(ownership.one_owner_at_a_time(story.history)) == []
    again = story.say("k", 1, 1, frozenset({A}), None)
    if is_put_out:
        again.code = ErrorCode.FENCED_MEMBER_EPOCH
    assert bool(list(ownership.one_owner_at_a_time(story.history))) is not is_put_out


def test_a_coordinator_that_was_replaced_answers_what_it_has() -> None:
    story = Story()
    story.commit_offset(9, "9")
    story.fetch_offset(5, "t1:5").was_replaced = True
    assert list(offsets.commits_are_kept(story.history)) == []
    assert list(offsets.fetches_never_go_back(story.history)) == []


def test_an_offset_may_be_unseen_between_the_answer_to_a_commit_and_its_markers() -> None:
    """Unseen by a fetch that does not ask for stable offsets; a fetch that does must be tried again."""
    story = Story()
    _commit_transaction(story)
    story.end("t3", 2, commit=True)
    story.fetch_offset(5, "t1:5")
    assert list(offsets.commits_are_kept(story.history)) == []


@pytest.mark.parametrize(("plant", "check"), PLANTED, ids=[plant.__name__.strip("_") for plant, _ in PLANTED])
def test_a_planted_violation_is_found(plant: Plant, check: Check) -> None:
    assert list(check(Story())) == []
    story = Story()
    plant(story)
    with pytest.raises(Violation):
        insist(check(story))


@pytest.mark.parametrize(
    ("then", "is_found"),
    [((1, 1, 0), True), ((1, 1, -1), False), ((2, 1, 1), False), ((1, 2, 0), False), ((1, 1, 2), False)],
    ids=["led", "follows", "another leads", "another life", "leads again"],
)
def test_what_one_leader_says_in_one_epoch_never_goes_back(then: tuple[int, int, int], *, is_found: bool) -> None:
    story = Story()
    for server, high_watermark in (((1, 1, 0), 23), (then, 22)):
        story.add(
            Read,
            client="c",
            server=server,
            place=A,
            committed_only=True,
            position=0,
            next_position=0,
            records=(),
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
        )
    found = list(isolation.stable_offsets_never_go_back(story.history, has_followers=True))
    assert bool(found) is is_found
