"""A history with a planted violation must be refused: the judge of the torture can fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compat_tests.torture.journal import Found, Journal, Transaction, Violation, value_of

History = tuple[Journal, list[Found]]


def plain(*, exactly_once: bool = True, **kind: bool) -> History:
    """Two writers took turns, ten records each, all acknowledged."""
    journal = Journal("t-0", **kind)
    found = []
    for name in ("a", "b"):
        writer = journal.writer(name, exactly_once=exactly_once, keys=2 if journal.compacted else 0)
        writer.sent = 10
    for number in range(10):
        for name in ("a", "b"):
            writer = journal.writers[name]
            writer.acknowledged[number] = len(found)
            found.append(Found(len(found), writer.key(number), value_of(name, number)))
    return journal, found


def judge(history: History) -> None:
    journal, found = history
    journal.judge(found, found[0].offset, found[-1].offset + 1)


def transactions() -> History:
    journal = Journal("t-0", transactional=True)
    writer = journal.writer("a", exactly_once=True)
    writer.sent = 9
    journal.transactions["a"] = [Transaction(0, 3, True), Transaction(3, 6, False), Transaction(6, 9, None)]
    return journal, [Found(offset, None, value_of("a", offset)) for offset in range(3)]


def test_what_is_right_passes() -> None:
    judge(plain())
    judge(plain(compacted=True))
    judge(transactions())


def test_a_writer_that_is_not_idempotent_may_repeat_itself() -> None:
    journal, found = plain(exactly_once=False)
    again = [Found(offset, None, value_of("a", offset - 12)) for offset in (20, 21)]
    journal.judge([*found, *again], 0, 22)


def test_what_its_producer_itself_sent_later_may_stand_behind() -> None:
    journal, found = plain(exactly_once=False)
    reports = journal.writers["a"].acknowledged
    reports[1] = reports.pop(1)  # it was told of the last
    found[2:5] = [Found(2, *found[4][1:]), found[3], Found(4, *found[2][1:])]
    judge((journal, found))
    assert journal.sent_later == 1


def test_retention_may_take_the_front() -> None:
    journal, found = plain(shrinks=True)
    journal.judge(found[7:], 7, 20)


def test_compaction_may_take_old_values() -> None:
    journal, found = plain(compacted=True)
    journal.judge(found[-4:], 0, 20)


PLANTED: dict[str, tuple[Callable[[], History], Callable[[Journal, list[Found]], object], str]] = {
    "the last record is lost": (plain, lambda _, found: found.pop(), "is gone"),
    "a record in the middle is lost": (plain, lambda _, found: found.pop(5), "missing or out of order"),
    "the front is lost": (plain, lambda _, found: found.__delitem__(slice(0, 2)), "is gone"),
    "two records change places": (
        plain,
        lambda _, found: found.__setitem__(slice(2, 4), [Found(2, *found[3][1:]), Found(3, *found[2][1:])]),
        "was acknowledged at",
    ),
    "a record twice": (plain, lambda _, found: found.append(Found(20, *found[-1][1:])), "was acknowledged at"),
    "a record twice, whose offset is not known": (
        plain,
        lambda journal, found: (journal.writers["b"].acknowledged.pop(9), found.append(Found(20, *found[-1][1:]))),
        "or twice",
    ),
    "an unacknowledged record is lost in the middle": (
        plain,
        lambda journal, found: (
            journal.writers["a"].acknowledged.pop(9),
            journal.writers["b"].acknowledged.clear(),
            found.__setitem__(slice(0, None), [Found(i, *one[1:]) for i, one in enumerate(found[:9] + found[10:18])]),
        ),
        "was acknowledged at|missing between",
    ),
    "a record from nowhere": (plain, lambda _, found: found.append(Found(20, None, b"hello")), "nobody sent"),
    "a record that is still to be sent": (
        plain,
        lambda _, found: found.append(Found(20, None, value_of("a", 10))),
        "did not send",
    ),
    "a flipped bit": (
        plain,
        lambda _, found: found.__setitem__(3, found[3]._replace(value=(found[3].value or b"") + b"!")),
        "did not send",
    ),
    "an offset that becomes another record": (
        lambda: plain(exactly_once=False),
        lambda journal, found: (journal.see(found[3]), found.__setitem__(3, found[1]._replace(offset=3))),
        "something else before",
    ),
    "out of order without idempotence": (
        lambda: plain(exactly_once=False),
        lambda _, found: found.__setitem__(slice(2, 5), [Found(2, *found[4][1:]), found[3], Found(4, *found[2][1:])]),
        "for the first time after",
    ),
    "a key's newest value is gone": (
        lambda: plain(compacted=True),
        lambda _, found: found.__delitem__(slice(-2, None)),
        "newest, was acknowledged and is gone",
    ),
    "a committed transaction in part": (transactions, lambda _, found: found.pop(), "was committed and lacks"),
    "an aborted transaction is seen": (
        transactions,
        lambda _, found: found.append(Found(3, None, value_of("a", 3))),
        "was aborted and",
    ),
    "a part of one that nobody knows of": (
        transactions,
        lambda _, found: found.append(Found(6, None, value_of("a", 6))),
        "in part",
    ),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_wrong_is_seen(what: str) -> None:
    history, plant, complaint = PLANTED[what]
    journal, found = history()
    plant(journal, found)
    with pytest.raises(Violation, match=complaint):
        judge((journal, found))
