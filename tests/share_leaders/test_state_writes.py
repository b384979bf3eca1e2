"""The writes of a share partition that come while one is under way go together."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest

from pykbroker.coordinator.share.share_partition_key import SharePartitionKey
from pykbroker.net.promise import Promise
from pykbroker.share_leaders import state_writes
from pykbroker.share_leaders.state_writes import JoinedWrites
from pykbroker.share_partitions.delivery_states import ACKNOWLEDGED, AVAILABLE
from pykbroker.share_partitions.state_changes import DeliveryWrite
from pykbroker.share_persister.state_operations import ShareStateAnswer
from pykbroker_wire.errors import ErrorCode

KEY = SharePartitionKey("group", bytes(16), 0)
Ranges = Sequence[tuple[int, int, int, int]]


class Rig:
    """Writes, and the promises of those that were sent. `outcomes` has the name and outcome of each write, in order."""

    def __init__(self) -> None:
        self.answers: list[ShareStateAnswer] = []
        self.writes = JoinedWrites(KEY, self._send, self.answers.append)
        self.sent: list[tuple[int, int, Ranges]] = []
        self.outcomes: list[tuple[str, str]] = []
        self._promises: list[Promise] = []

    def _send(self, write: DeliveryWrite) -> Promise:
        self.sent.append((write.start, write.delivered, list(write.ranges)))
        self._promises.append(Promise())
        return self._promises[-1]

    def write(self, name: str, start: int, *offsets: int, state: int = ACKNOWLEDGED) -> Promise:
        write = DeliveryWrite(is_awaited=True)
        write.start = start
        write.delivered = len(offsets)
        for offset in offsets:
            write.add(offset, offset, state, 1)
        promise = self.writes.write(write)
        promise.add_done_callback(lambda done: self.outcomes.append((name, done.result().message)))
        return promise

    def answer(self, text: str) -> None:
        self._promises.pop(0).set_result(ShareStateAnswer(ErrorCode.NONE, text))


def test_a_write_is_sent_at_once_if_none_is_under_way() -> None:
    rig = Rig()
    rig.write("a", 0, 3)
    assert rig.sent == [(0, 1, [(3, 3, ACKNOWLEDGED, 1)])]
    rig.answer("stored")
    rig.write("b", 4, 7)
    assert rig.sent[1:] == [(4, 1, [(7, 7, ACKNOWLEDGED, 1)])]
    assert rig.outcomes == [("a", "stored")]


def test_all_that_wait_are_sent_at_once_when_the_leader_leaves() -> None:
    rig = Rig()
    rig.write("a", 0, 3)
    rig.write("b", 1, 9)
    rig.write("c", 2, 4)
    rig.writes.send_all()
    assert rig.sent[1:] == [(2, 1, [(9, 9, ACKNOWLEDGED, 1), (4, 4, ACKNOWLEDGED, 1)])]
    rig.answer("stored")
    rig.answer("refused")
    assert rig.outcomes == [("a", "stored"), ("b", "refused"), ("c", "refused")]


def test_writes_that_come_meanwhile_are_one_write_with_the_last_start() -> None:
    rig = Rig()
    rig.write("a", 0, 3)
    rig.write("b", 1, 9)
    rig.write("c", 2, 4, 6, state=AVAILABLE)
    assert len(rig.sent) == 1
    rig.answer("stored")
    assert rig.sent[1:] == [(2, 2, [(9, 9, ACKNOWLEDGED, 1), (4, 4, AVAILABLE, 1), (6, 6, AVAILABLE, 1)])]
    assert rig.outcomes == [("a", "stored")]
    rig.answer("refused")
    assert rig.outcomes[1:] == [("b", "refused"), ("c", "refused")]
    assert len(rig.sent) == 2


def test_a_write_that_comes_with_an_outcome_waits_for_those_before_it() -> None:
    rig = Rig()
    rig.write("a", 0, 3).add_done_callback(lambda _: rig.write("c", 0, 5))
    rig.write("b", 0, 4)
    rig.answer("stored")
    # It is after "b", and in the same write.
    assert rig.sent[1:] == [(0, 1, [(4, 4, ACKNOWLEDGED, 1), (5, 5, ACKNOWLEDGED, 1)])]


def test_outcomes_that_come_within_the_call_need_no_stack() -> None:
    outcomes: list[str] = []

    def send(write: DeliveryWrite) -> Promise:
        promise = Promise()
        promise.set_result(ShareStateAnswer(ErrorCode.NONE, "stored"))
        return promise

    writes = JoinedWrites(KEY, send, lambda answer: None)
    for _ in range(5_000):
        writes.write(DeliveryWrite(is_awaited=False)).add_done_callback(
            lambda done: outcomes.append(done.result().message)
        )
    assert outcomes == ["stored"] * 5_000


@pytest.mark.parametrize(
    ("most_writes", "most_ranges", "sizes"),
    [(3, 100, [3, 3, 1]), (100, 4, [4, 3]), (100, 1, [1] * 7)],
)
def test_a_write_has_a_limit(
    most_writes: int, most_ranges: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_writes, "MOST_WRITES", most_writes)
    monkeypatch.setattr(state_writes, "MOST_RANGES", most_ranges)
    rig = Rig()
    rig.write("first", 0, 0)
    for offset in range(1, 8):
        rig.write(str(offset), 0, offset)
    while len(rig.outcomes) < 8:
        rig.answer("stored")
    assert [len(ranges) for _, _, ranges in rig.sent[1:]] == sizes
    assert [name for name, _ in rig.outcomes[1:]] == [str(offset) for offset in range(1, 8)]


def test_a_single_write_may_be_larger_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writes, "MOST_RANGES", 2)
    rig = Rig()
    rig.write("first", 0, 0)
    rig.write("large", 0, 1, 3, 5)
    rig.write("small", 0, 7)
    rig.answer("stored")
    assert [len(ranges) for _, _, ranges in rig.sent] == [1, 3]


def test_an_outcome_that_cannot_be_used_keeps_none_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Promise) -> None:
        raise ValueError("an answer that fails")

    rig = Rig()
    rig.write("a", 0, 0)
    rig.write("b", 0, 1).add_done_callback(fail)
    rig.write("c", 0, 2)
    rig.answer("stored")
    rig.write("d", 0, 3)
    with caplog.at_level(logging.ERROR):
        rig.answer("stored")
    assert "an answer that fails" in caplog.text
    assert rig.outcomes == [("a", "stored"), ("c", "stored")]
    assert len(rig.sent) == 3


def test_each_answer_is_passed_on_once_before_its_writes_end() -> None:
    rig = Rig()
    rig.write("a", 0, 0)
    seen: list[int] = []
    for offset in (1, 2):
        rig.write("b", 0, offset).add_done_callback(lambda _: seen.append(len(rig.answers)))
    rig.answer("stored")
    rig.answer("stored")
    assert seen == [2, 2]
    assert len(rig.answers) == 2


def test_too_many_writes_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writes, "MOST_WAITING", 3)
    rig = Rig()
    for offset in range(5):
        rig.write(str(offset), 0, offset)
    assert [name for name, _ in rig.outcomes] == ["4"]
    rig.answer("stored")
    rig.write("5", 0, 5)
    rig.answer("stored")
    rig.answer("stored")
    assert [name for name, _ in rig.outcomes] == ["4", "0", "1", "2", "3", "5"]


def test_an_answer_that_cannot_be_noted_ends_its_writes(caplog: pytest.LogCaptureFixture) -> None:
    def fail(answer: ShareStateAnswer) -> None:
        raise ValueError("a note that fails")

    rig = Rig()
    rig.writes = JoinedWrites(KEY, rig._send, fail)
    rig.write("a", 0, 0)
    rig.write("b", 0, 1)
    rig.answer("stored")
    rig.answer("stored")
    assert "a note that fails" in caplog.text
    assert [name for name, _ in rig.outcomes] == ["a", "b"]
