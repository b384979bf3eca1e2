"""The judge of the torture must refuse a history with a planted violation, which shows that it can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from testkit.torture.attempts import Account, Attempt, Fate
from testkit.torture.epochs import Repeats
from testkit.torture.journal import Found, Journal, Transaction, Violation, value_of

History = tuple[Journal, list[Found]]


def plain(*, exactly_once: bool = True, **kind: Any) -> History:
    """Two writers took turns with ten records each, one in a request, all acknowledged."""
    journal = Journal("t-0", **kind)
    found: list[Found] = []
    for name in ("a", "b"):
        writer = journal.writer(name, exactly_once=exactly_once, keys=2 if journal.compacted else 0)
        writer.sent = 10
    for number in range(10):
        for name in ("a", "b"):
            writer = journal.writers[name]
            writer.acknowledged[number] = len(found)
            writer.account.attempts.append(Attempt((number,), Fate.DELIVERED))
            found.append(Found(len(found), writer.key(number), value_of(name, number)))
    return journal, found


def judge(history: History) -> None:
    journal, found = history
    journal.judge(found, found[0].offset, found[-1].offset + 1)


def requests(*sent: Attempt, **kind: Any) -> History:
    """Requests of one writer that is not idempotent. Every request that was not refused is in the log."""
    journal = Journal("t-0", **kind)
    writer = journal.writer("a", exactly_once=False, keys=3 if journal.compacted else 0)
    writer.account.attempts += sent
    found: list[Found] = []
    for attempt in sent:
        for number in attempt.numbers:
            writer.sent = max(writer.sent, number + 1)
            if attempt.fate is Fate.REFUSED:
                continue
            if attempt.fate is Fate.DELIVERED:
                writer.acknowledged[number] = len(found)
            found.append(Found(len(found), writer.key(number), value_of("a", number)))
    return journal, found


def delivered(*numbers: int) -> Attempt:
    return Attempt(numbers, Fate.DELIVERED)


def refused(*numbers: int) -> Attempt:
    return Attempt(numbers, Fate.REFUSED)


def unanswered(*numbers: int) -> Attempt:
    return Attempt(numbers, Fate.UNKNOWN)


def sent_behind(**kind: bool) -> History:
    """The broker refused the first request, and accepted the second before the first came again."""
    return requests(refused(0, 1), delivered(2, 3), delivered(0, 1), delivered(4, 5), **kind)


def sent_twice() -> History:
    """The answer of the first request was lost. The request was sent again, and is there twice."""
    return requests(unanswered(0, 1), delivered(0, 1), delivered(2, 3))


def written_again(*again: frozenset[int]) -> History:
    """An idempotent writer's records, whose client wrote record 2 again in a new epoch, and had its answer then."""
    journal = Journal("t-0")
    writer = journal.writer("a", exactly_once=True)
    writer.sent = 5
    writer.acknowledged = {0: 0, 1: 1, 2: 3, 3: 4, 4: 5}
    writer.repeats.by_epoch += again or [frozenset({2})]
    numbers = (0, 1, 2, 2, 3, 4)
    return journal, [Found(offset, None, value_of("a", number)) for offset, number in enumerate(numbers)]


def without_acknowledgements(journal: Journal, found: list[Found], *order: int) -> None:
    """Reorder the records of `written_again`, and forget their places, because only the order is to be judged."""
    journal.writers["a"].acknowledged.clear()
    renumbered(found, *order)


def renumbered(found: list[Found], *order: int) -> None:
    """Keep the records of these offsets, in this order, with offsets from 0."""
    found[:] = [found[old]._replace(offset=new) for new, old in enumerate(order)]


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
    judge(sent_twice())
    journal, found = sent_twice()
    # The broker was killed before it had appended the first request.
    renumbered(found, 2, 3, 4, 5)
    journal.writers["a"].acknowledged = {0: 0, 1: 1, 2: 2, 3: 3}
    judge((journal, found))
    assert journal.sent_later == 0


def test_an_idempotent_client_may_repeat_in_a_new_epoch_what_had_no_answer() -> None:
    judge(written_again())
    # Two epochs, and in each of them several records.
    journal, found = written_again(frozenset({1, 2}), frozenset({2, 3}))
    without_acknowledgements(journal, found, 0, 1, 2, 1, 2, 4, 2, 4, 5)
    judge((journal, found))
    # The request without an answer was not written.
    journal, found = written_again()
    journal.writers["a"].acknowledged.update({2: 2, 3: 3, 4: 4})
    renumbered(found, 0, 1, 2, 4, 5)
    judge((journal, found))


def test_a_request_that_was_refused_may_be_there() -> None:
    """The leader went away while the answer waited."""
    journal, found = requests(unanswered(0, 1), unanswered(2, 3), delivered(0, 1), delivered(2, 3))
    for attempt in journal.writers["a"].account.attempts[:2]:
        attempt.fate = Fate.REFUSED
    judge((journal, found))


def test_what_its_client_sent_later_stands_behind() -> None:
    for history in (sent_behind(), sent_behind(shrinks=True), sent_behind(compacted=True)):
        judge(history)
        assert history[0].sent_later == 2


def test_compaction_keeps_what_was_appended_last() -> None:
    """The client sent record 3 of key 0 before record 0, which the broker had refused."""
    journal, found = sent_behind(compacted=True)
    journal.judge(found[2:], 0, 6)


def test_retention_may_take_the_front() -> None:
    journal, found = plain(shrinks=True)
    journal.judge(found[7:], 7, 20)


def test_retention_may_take_requests_that_are_not_idempotent() -> None:
    journal, found = sent_behind(shrinks=True)
    journal.judge(found[2:], 2, 6)
    journal.judge([], 6, 6)


def test_compaction_may_take_old_values() -> None:
    journal, found = plain(compacted=True)
    journal.judge(found[-4:], 0, 20)


def repeated_without_an_offset(journal: Journal, found: list[Found]) -> None:
    journal.writers["b"].acknowledged.pop(9)
    found.append(Found(20, *found[-1][1:]))


def lost_without_offsets(journal: Journal, found: list[Found]) -> None:
    journal.writers["a"].acknowledged.pop(9)
    journal.writers["b"].acknowledged.clear()
    found[:] = [Found(number, *one[1:]) for number, one in enumerate(found[:9] + found[10:18])]


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
        repeated_without_an_offset,
        "or twice",
    ),
    "an unacknowledged record is lost in the middle": (
        plain,
        lost_without_offsets,
        "was acknowledged at|missing between",
    ),
    "once: the client began no new epoch": (
        written_again,
        lambda journal, _: journal.writers["a"].repeats.by_epoch.clear(),
        "record 2 was acknowledged at 3 and is at 2",
    ),
    "once: the answer to another record was lost": (
        lambda: written_again(frozenset({1, 3, 4})),
        lambda *_: None,
        "record 2 was acknowledged at 3 and is at 2",
    ),
    "once: the last copy is lost": (
        written_again,
        lambda _, found: renumbered(found, 0, 1, 2, 4, 5),
        "record 3 was acknowledged at 4 and is at 3",
    ),
    "once: the last copy is lost, and nothing is after it": (
        written_again,
        lambda _, found: renumbered(found, 0, 1, 2),
        "record 2 was acknowledged at 3 and is gone",
    ),
    "once: a copy is after the acknowledged place": (
        written_again,
        lambda journal, _: journal.writers["a"].acknowledged.update({2: 2}),
        "record 2 was acknowledged at 2 and is at 3",
    ),
    "once: a record three times for one new epoch": (
        written_again,
        lambda journal, found: without_acknowledgements(journal, found, 0, 1, 2, 2, 2, 4, 5),
        "record 2 comes after 2, or twice",
    ),
    "once: the copy is after later records": (
        written_again,
        lambda journal, found: without_acknowledgements(journal, found, 0, 1, 2, 4, 2, 5),
        "record 2 comes after 3, or twice",
    ),
    "once: the epochs repeat in another order": (
        lambda: written_again(frozenset({1}), frozenset({3})),
        lambda journal, found: without_acknowledgements(journal, found, 0, 1, 2, 4, 4, 1, 5),
        "record 1 comes after 3, or twice",
    ),
    "once: a record is lost at a new epoch": (
        written_again,
        lambda journal, found: without_acknowledgements(journal, found, 0, 2, 2, 4, 5),
        "missing between",
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
    "f3: two requests change places": (
        lambda: requests(delivered(0, 1), unanswered(2, 3), delivered(4)),
        lambda _, found: renumbered(found, 2, 3, 0, 1, 4),
        "do not explain",
    ),
    "f3: two requests without an answer change places": (
        lambda: requests(unanswered(0, 1), unanswered(2, 3)),
        lambda _, found: renumbered(found, 2, 3, 0, 1),
        "do not explain",
    ),
    "f3: a request that was refused is there behind the next": (
        lambda: requests(refused(0, 1), unanswered(2, 3)),
        lambda _, found: found.extend(Found(i, None, value_of("a", n)) for i, n in ((2, 0), (3, 1))),
        "do not explain",
    ),
    "f3: a request is there more often than it was sent": (
        sent_twice,
        lambda _, found: renumbered(found, 0, 1, 2, 3, 4, 5, 0, 1),
        "do not explain",
    ),
    "f3: a part of a request is there": (
        lambda: requests(delivered(0, 1), unanswered(2, 3)),
        lambda _, found: renumbered(found, 0, 1, 2),
        "do not explain",
    ),
    "f3: the records of a request change places": (
        lambda: requests(unanswered(0, 1)),
        lambda _, found: renumbered(found, 1, 0),
        "do not explain",
    ),
    "f3: an acknowledged request is lost": (
        lambda: requests(delivered(0, 1), delivered(2, 3), unanswered(4)),
        lambda _, found: renumbered(found, 2, 3, 4),
        "do not explain",
    ),
    "f3: the last acknowledged request is lost": (
        lambda: requests(delivered(0, 1), delivered(2, 3)),
        lambda _, found: renumbered(found, 0, 1),
        "do not explain",
    ),
    "f3: all is lost": (
        lambda: requests(unanswered(0), delivered(0), delivered(1)),
        lambda _, found: renumbered(found, 0, 2),
        "was acknowledged at 1 and is gone",
    ),
    "f3: a record is where it was not acknowledged": (
        sent_twice,
        lambda journal, _: journal.writers["a"].acknowledged.__setitem__(0, 4),
        "record 0 was acknowledged at 4 and is gone",
    ),
    "f3: a compacted log in another order": (
        lambda: requests(delivered(0, 1), delivered(2, 3), compacted=True),
        lambda _, found: renumbered(found, 2, 3, 0, 1),
        "do not explain",
    ),
    "f3: what was appended last is gone from a compacted log": (
        lambda: sent_behind(compacted=True),
        lambda _, found: found.__delitem__(2),
        "record 0, its key's newest, was acknowledged and is gone",
    ),
    "f3: its client's account is broken": (
        lambda: requests(delivered(0, 1)),
        lambda journal, _: journal.writers["a"].account.hear(LINE + "MessageSet with 2 message(s) (MsgId 0) delivered"),
        "has lost count of its requests",
    ),
    "f3: its client never sent it": (
        lambda: requests(delivered(0, 1)),
        lambda journal, _: journal.writers["a"].account.attempts.clear(),
        "do not explain",
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


LINE = "PRODUCE [rdkafka#producer-1] [thrd:localhost:9092/1]: localhost:9092/1: t [0]: "


def test_the_account_of_a_client() -> None:
    """Two requests are built. The first is refused, and comes again after the second, with new records after it."""
    account = Account()
    for said in (
        "No more space in current MessageSet (2 message(s), 282 bytes)",
        "Produce MessageSet with 2 message(s) (231 bytes, ApiVersion 10, MsgVersion 2, MsgId 0, uncompressed)",
        "Produce MessageSet with 1 message(s) (131 bytes, ApiVersion 10, MsgVersion 2, MsgId 0, uncompressed)",
        "MessageSet with 2 message(s) (MsgId 0, BaseSeq -1) encountered error: Broker: Not leader for partition "
        "(actions Refresh,MsgNotPersisted)",
        "MessageSet with 1 message(s) (MsgId 0, BaseSeq -1) delivered",
        "Produce MessageSet with 3 message(s) (331 bytes, ApiVersion 10, MsgVersion 2, MsgId 0, uncompressed)",
        "MessageSet with 3 message(s) (MsgId 0, BaseSeq -1) encountered error: Local: Broker transport failure "
        "(actions Refresh,MsgPossiblyPersisted)",
        "Produce MessageSet with 3 message(s) (331 bytes, ApiVersion 10, MsgVersion 2, MsgId 0, uncompressed)",
        "MessageSet with 3 message(s) (MsgId 0, BaseSeq -1) delivered",
    ):
        account.hear(LINE + said)
    assert [(list(attempt.numbers), attempt.fate) for attempt in account.attempts] == [
        ([0, 1], Fate.REFUSED),
        ([2], Fate.DELIVERED),
        ([0, 1, 3], Fate.UNKNOWN),
        ([0, 1, 3], Fate.DELIVERED),
    ]


EPOCH_1 = "t [0] changed PID{Id:5,Epoch:0} -> PID{Id:5,Epoch:1} with base MsgId 2"
EPOCH_2 = "t [0] changed PID{Id:5,Epoch:1} -> PID{Id:5,Epoch:2} with base MsgId 2"
LOST = "Local: Broker transport failure (actions Refresh,MsgPossiblyPersisted)"
NOT_LEADER = "Broker: Not leader for partition (actions Refresh,MsgNotPersisted)"
OUT_OF_ORDER = "Broker: Broker received an out of order sequence number (actions Permanent,MsgPossiblyPersisted)"
UNKNOWN_PRODUCER = "Broker: Unknown Producer Id (actions Permanent,MsgPossiblyPersisted)"


def failed(message_id: int, error: str, *, count: int = 1) -> str:
    at = f"(MsgId {message_id}, BaseSeq {message_id - 1})"
    return LINE + f"MessageSet with {count} message(s) {at} encountered error: {error}"


def test_the_epochs_of_a_client() -> None:
    """Messages are numbered from 1. Two requests lose their answers, and both are refused then. The first one is
    delivered after that."""
    repeats = Repeats()
    for said in (
        "t [0] changed PID{Invalid} -> PID{Id:5,Epoch:0} with base MsgId 1",
        LINE + "MessageSet with 2 message(s) (MsgId 1, BaseSeq 0) delivered",
        failed(3, LOST, count=2),
        failed(5, f"{LOST} [NOT LEADER]"),
        failed(3, NOT_LEADER, count=2),
        LINE + "MessageSet with 2 message(s) (MsgId 3, BaseSeq 2) delivered",
        failed(5, NOT_LEADER),
        failed(6, NOT_LEADER),
        failed(7, OUT_OF_ORDER),
        "t [0] changed PID{Id:5,Epoch:0} -> PID{Id:5,Epoch:1} with base MsgId 5",
        "t [0] changed PID{Id:5,Epoch:1} -> PID{Id:5,Epoch:2} with base MsgId 5",
    ):
        repeats.hear(said)
    assert repeats.by_epoch == [{4}]
    assert [number for number in range(8) if repeats.has(number)] == [4]


def written_by(said: tuple[str, ...], numbers: tuple[int, ...]) -> History:
    """The records of an idempotent writer whose client said this. Each was acknowledged where its last copy is."""
    journal = Journal("t-0")
    writer = journal.writer("a", exactly_once=True)
    writer.sent = max(numbers) + 1
    writer.acknowledged = {number: offset for offset, number in enumerate(numbers)}
    for line in said:
        writer.repeats.hear(line)
    return journal, [Found(offset, None, value_of("a", number)) for offset, number in enumerate(numbers)]


#: The answer to records 1 and 2 is lost, and a new leader refuses them and record 3 before it takes record 4.
RACE = (failed(2, LOST, count=2), failed(2, NOT_LEADER, count=2), failed(4, NOT_LEADER), failed(5, OUT_OF_ORDER))


def test_a_refused_repetition_may_come_again_in_a_new_epoch() -> None:
    judge(written_by((*RACE, EPOCH_1), (0, 1, 2, 1, 2, 3, 4)))
    judge(written_by((*RACE, EPOCH_1, *RACE, EPOCH_2), (0, 1, 2, 1, 2, 1, 2, 3, 4)))
    # The record that was out of order in epoch 0 is the one that is repeated after epoch 1.
    race = (failed(5, LOST), failed(5, NOT_LEADER), failed(6, NOT_LEADER), failed(7, OUT_OF_ORDER))
    epoch_2 = EPOCH_2.replace("MsgId 2", "MsgId 5")
    judge(written_by((*RACE, EPOCH_1, *race, epoch_2), (0, 1, 2, 1, 2, 3, 4, 4, 5, 6)))


@pytest.mark.parametrize(
    "said",
    [
        pytest.param((failed(2, LOST, count=2), failed(2, OUT_OF_ORDER, count=2)), id="out of order"),
        pytest.param((failed(2, LOST, count=2), failed(2, UNKNOWN_PRODUCER, count=2)), id="unknown producer"),
        pytest.param((*RACE[:2], failed(2, OUT_OF_ORDER, count=2)), id="refused, then out of order"),
        pytest.param((*RACE[:2], failed(2, UNKNOWN_PRODUCER, count=2)), id="refused, then unknown producer"),
        pytest.param((failed(2, OUT_OF_ORDER, count=2), *RACE[1:]), id="refused after out of order"),
        pytest.param((failed(2, UNKNOWN_PRODUCER, count=2), *RACE[1:]), id="refused after unknown producer"),
        pytest.param((RACE[1], RACE[0], *RACE[2:]), id="refused only before the answer was lost"),
        pytest.param((RACE[0], *RACE[2:]), id="only a later request is refused"),
        pytest.param((RACE[0], failed(2, NOT_LEADER), *RACE[2:]), id="only a part is refused"),
        pytest.param(
            (RACE[0], failed(2, "Local: Purged in queue (actions Permanent,MsgNotPersisted)", count=2), *RACE[2:]),
            id="refused by no broker",
        ),
    ],
)
def test_a_broker_that_forgot_a_producer_is_seen(said: tuple[str, ...]) -> None:
    """The client sends records 1 and 2 again in a new epoch, because the broker no longer knew them."""
    with pytest.raises(Violation, match=r"record 1 was acknowledged at 3 and is at 1|record 2 was acknowledged at 4"):
        judge(written_by((*said, EPOCH_1), (0, 1, 2, 1, 2, 3, 4)))


def test_a_new_epoch_needs_a_new_lost_answer() -> None:
    """The broker forgets the producer after a repetition that was right, or only the refusal comes once more."""
    for again in ((failed(2, LOST, count=2), failed(2, OUT_OF_ORDER, count=2)), RACE[1:]):
        with pytest.raises(Violation, match="record 1 comes after 2, or twice"):
            judge(written_by((*RACE, EPOCH_1, *again, EPOCH_2), (0, 1, 2, 1, 2, 1, 2, 3, 4)))


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_wrong_is_seen(what: str) -> None:
    history, plant, complaint = PLANTED[what]
    journal, found = history()
    plant(journal, found)
    with pytest.raises(Violation, match=complaint):
        judge((journal, found))


def test_of_a_client_of_several_brokers_only_losses_are_judged() -> None:
    journal, found = requests(delivered(0, 1), delivered(2, 3))
    journal.writers["a"].is_accounted = False
    journal.writers["a"].account.attempts.clear()
    journal.writers["a"].acknowledged = {0: 4, 1: 5, 2: 0, 3: 1}
    again = [found[at]._replace(offset=offset) for offset, at in enumerate((2, 3, 2, 3, 0, 1))]
    judge((journal, again))
    with pytest.raises(Violation, match="acknowledged at 5 and is gone"):
        judge((journal, again[:-1]))
