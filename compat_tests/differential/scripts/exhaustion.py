"""Epochs that are used up: the last ones of a producer id, and the id that comes after it. Minutes long."""

from __future__ import annotations

from compat_tests.differential.scripts.asking import (
    Producer,
    add_partitions,
    batch,
    end,
    init,
    producer,
    until_coordinator,
    until_state,
    until_written,
    write,
)
from compat_tests.differential.scripts.isolation import _producers
from compat_tests.differential.session import NodeError, Session
from compat_tests.differential.stored import TRANSACTIONS, Stored
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest

LAST_EPOCH = 32_766  # 32,767 is only for fencing
IN_FLIGHT = 200


def _used_up(s: Session, what: str, *, timeout_ms: int = 60_000) -> Producer:
    """Return a producer that has only the last epoch left."""
    p = producer(s, what)
    request = init(p.name, timeout_ms=timeout_ms)
    while p.epoch < LAST_EPOCH:
        for answer in s.ask_many(request, min(IN_FLIGHT, LAST_EPOCH - p.epoch)):
            if answer.error_code:
                raise NodeError(f"{p.name}: error {answer.error_code} at epoch {p.epoch}")
            p.epoch = answer.producer_epoch
    return p


def _described(s: Session, label: str, p: Producer) -> None:
    s.call(label, DescribeTransactionsRequest(transactional_ids=[p.name]))


def exhausted_epochs(s: Session) -> None:
    """The epoch after the last one: InitProducerId, EndTxn, fencing and timeouts give a new producer id."""
    until_coordinator(s)
    topic = s.make_topic(partitions=1)
    # InitProducerId.
    p = _used_up(s, "init")
    log = Stored(s, TRANSACTIONS)
    _described(s, "init: described", p)
    s.call("init: knowing", init(p.name, producer_id=p.id, producer_epoch=p.epoch))
    s.call("init: knowing, its retry", init(p.name, producer_id=p.id, producer_epoch=p.epoch))
    s.call("init: without", init(p.name))
    s.call("init: knowing the old id", init(p.name, producer_id=p.id, producer_epoch=p.epoch))
    log.note("init")
    # EndTxn.
    for commit in (True, False):
        what = "commit" if commit else "abort"
        p = _used_up(s, what)
        log = Stored(s, TRANSACTIONS)
        until_written(s, p, topic, (0, batch(p)))
        s.call(f"{what}: an older epoch", end(p.older(), commit=commit))
        old = Producer(p.name, p.id, p.epoch)
        answer = s.call(what, end(p, commit=commit))
        until_state(s, p.name, "CompleteCommit" if commit else "CompleteAbort")
        s.call(f"{what}: its retry", end(old, commit=commit))
        s.call(f"{what}: its opposite", end(old, commit=not commit))
        s.call(f"{what}: producers", _producers(topic, 0))
        p.take(answer)
        _described(s, f"{what}: described", p)
        s.call(f"{what}: the old id writes", write(s, old, topic, (0, batch(old, 1))))
        s.call(f"{what}: the old id adds", add_partitions(old, (topic, [0])), 3)
        until_written(s, p, topic, (0, batch(p)))
        p.take(s.call(f"{what}: the next", end(p)))
        until_state(s, p.name, "CompleteCommit")
        log.note(what)
    # EndTxn as clients of version 1 send it.
    p = _used_up(s, "v1")
    log = Stored(s, TRANSACTIONS)
    until_written(s, p, topic, (0, batch(p)))
    s.call("version 1: commit", end(p), 4)
    until_state(s, p.name, "CompleteCommit")
    _described(s, "version 1: described", p)
    log.note("version 1")
    # Fenced.
    p = _used_up(s, "fenced")
    log = Stored(s, TRANSACTIONS)
    until_written(s, p, topic, (0, batch(p)))
    s.call("fenced", init(p.name))
    until_state(s, p.name, "CompleteAbort")
    _described(s, "fenced: described", p)
    s.call("fenced: the old one ends", end(p))
    s.call("fenced: the next", init(p.name))
    _described(s, "fenced: described at last", p)
    log.note("fenced")
    # Timed out.
    p = _used_up(s, "late", timeout_ms=300)
    log = Stored(s, TRANSACTIONS)
    until_written(s, p, topic, (0, batch(p)))
    until_state(s, p.name, "CompleteAbort")
    _described(s, "late: described", p)
    s.call("late: aborts", end(p, commit=False))
    s.call("late: asks who it is", init(p.name, producer_id=p.id, producer_epoch=p.epoch))
    s.call("late: asks again", init(p.name))
    log.note("late")


LONG_SCRIPTS = (exhausted_epochs,)
