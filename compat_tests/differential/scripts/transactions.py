"""Transactions: the identity of a producer, what it adds, writes and ends, and the fencing of an older one of its
name."""

from __future__ import annotations

from compat_tests.differential.scripts.asking import (
    NOBODYS_ID,
    Producer,
    add_for,
    add_partitions,
    batch,
    end,
    init,
    producer,
    until_added,
    until_coordinator,
    until_ended,
    until_state,
    until_written,
    write,
)
from compat_tests.differential.session import Session
from pykbroker_wire.messages.describe_transactions import DescribeTransactionsRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest

MAX_TIMEOUT_MS = 900_000
KNOWING = range(3, 6)  # versions of InitProducerId in which a producer can send its identity


def find_transaction_coordinator(s: Session) -> None:
    """FindCoordinator for transactional ids: empty, repeated, several."""
    until_coordinator(s)
    for key in ("t", ""):
        s.each(
            f"id {key!r}",
            lambda v, k=key: (  # type: ignore[misc]
                FindCoordinatorRequest(key=k, key_type=1)
                if v < 4
                else FindCoordinatorRequest(key_type=1, coordinator_keys=[k])
            ),
            range(1, 7),
        )
    s.each("several", lambda v: FindCoordinatorRequest(key_type=1, coordinator_keys=["a", "", "b", "a"]), [4, 5, 6])


def init_producer_id(s: Session) -> None:
    """InitProducerId with a transactional id: new, again, with timeouts, with what the producer was."""
    until_coordinator(s)
    for version in range(6):
        name = s.name(f"new-{version}")
        s.call("new", init(name), version)
        s.call("again", init(name), version)
        s.call("with another timeout", init(name, timeout_ms=1), version)
        s.call("described", DescribeTransactionsRequest(transactional_ids=[name]))
    for timeout in (0, -1, -(2**31), 1, MAX_TIMEOUT_MS, MAX_TIMEOUT_MS + 1, 2**31 - 1):
        s.each(f"timeout {timeout}", lambda v, n=timeout: init(s.name(f"timeout-{v}"), timeout_ms=n))  # type: ignore[misc]
    s.each("empty id", lambda v: init(""))
    s.each("empty id, bad timeout", lambda v: init("", timeout_ms=0))
    for what, name in (("long", "x" * 3000), ("odd", "ä/ \n"), ("dots", "..")):
        s.call(f"{what} id", init(f"{s.name(what)}{name}"))
    # The old identity: right, older, newer, another.
    for version in KNOWING:
        name = s.name(f"known-{version}")
        s.call("unknown, with an identity", init(name, producer_id=777_000, producer_epoch=3), version)
        s.call("described, unknown", DescribeTransactionsRequest(transactional_ids=[name]))
        p = producer(s, f"known-{version}")
        s.call("id without epoch", init(name, producer_id=p.id, producer_epoch=-1), version)
        s.call("epoch without id", init(name, producer_id=-1, producer_epoch=p.epoch), version)
        s.call("negative both", init(name, producer_id=-2, producer_epoch=-2), version)
        s.call("right", init(name, producer_id=p.id, producer_epoch=p.epoch), version)
        s.call("the same again: its retry", init(name, producer_id=p.id, producer_epoch=p.epoch), version)
        s.call("the new one", init(name, producer_id=p.id, producer_epoch=p.epoch + 1), version)
        s.call("two epochs back", init(name, producer_id=p.id, producer_epoch=p.epoch), version)
        s.call("an epoch that was never", init(name, producer_id=p.id, producer_epoch=p.epoch + 9), version)
        s.call("another producer id", init(name, producer_id=p.id + NOBODYS_ID, producer_epoch=p.epoch + 2), version)
        s.call(
            "another producer id, old epoch", init(name, producer_id=p.id + NOBODYS_ID, producer_epoch=p.epoch), version
        )
        s.call("without", init(name), version)
        s.call("right before it", init(name, producer_id=p.id, producer_epoch=p.epoch + 2), version)
        s.call("after it", init(name, producer_id=p.id, producer_epoch=p.epoch + 3), version)


def init_during_transaction(s: Session) -> None:
    """InitProducerId while a transaction is open: it is aborted, its producer fenced."""
    until_coordinator(s)
    topic = s.make_topic()
    for version in (1, 4, 5):
        name = s.name(f"t-{version}")
        p = producer(s, f"t-{version}")
        until_added(s, p, (topic, [0]))
        until_written(s, p, topic, (0, batch(p)), version=11)
        s.call("described, open", DescribeTransactionsRequest(transactional_ids=[name]))
        s.call("again", init(name), version)
        until_state(s, name, "CompleteAbort")
        s.call("described, aborted", DescribeTransactionsRequest(transactional_ids=[name]))
        s.call("the old one adds", add_partitions(p, (topic, [0])), 3)
        s.call("the old one writes", write(s, p, topic, (0, batch(p, 1))), 11)
        s.call("the old one writes, newer version", write(s, p, topic, (0, batch(p, 1))), 13)
        s.call("the old one ends", end(p), 4)
        s.call("the old one ends, version 5", end(p), 5)
        s.call("once more", init(name), version)
        s.call("described", DescribeTransactionsRequest(transactional_ids=[name]))
        # The same by a producer that sends its identity.
        if version in KNOWING:
            p = producer(s, f"t-{version}")
            until_added(s, p, (topic, [0]))
            s.call("knowing", init(name, producer_id=p.id, producer_epoch=p.epoch), version)
            until_state(s, name, "CompleteAbort")
            s.call("knowing, again", init(name, producer_id=p.id, producer_epoch=p.epoch), version)
            s.call("described at last", DescribeTransactionsRequest(transactional_ids=[name]))


def add_to_transaction(s: Session) -> None:
    """AddPartitionsToTxn by clients: topics and partitions known and not, identities right and wrong."""
    until_coordinator(s)
    topic, other = s.make_topic(partitions=3), s.make_topic("other")
    for version in range(4):
        p = producer(s, f"t-{version}")
        s.call("add", add_partitions(p, (topic, [0]), (other, [0])), version)
        s.call("add again", add_partitions(p, (topic, [0])), version)
        s.call("add more", add_partitions(p, (topic, [2, 1])), version)
        s.call("described", DescribeTransactionsRequest(transactional_ids=[p.name]))
        s.call("unknown partition", add_partitions(p, (topic, [0, 7])), version)
        s.call("unknown topic", add_partitions(p, ("no-such-topic", [0]), (topic, [0])), version)
        s.call("negative partition", add_partitions(p, (topic, [-1])), version)
        s.call("bad name", add_partitions(p, ("a b", [0])), version)
        s.call("internal topic", add_partitions(p, ("__transaction_state", [0])), version)
        s.call("no topics", add_partitions(p), version)
        s.call("no partitions", add_partitions(p, (topic, [])), version)
        s.call("twice", add_partitions(p, (topic, [0, 0]), (topic, [1])), version)
        s.call("older epoch", add_partitions(p.older(), (topic, [0])), version)
        s.call("newer epoch", add_partitions(p.newer(), (topic, [0])), version)
        s.call("another producer", add_partitions(Producer(p.name, p.id + NOBODYS_ID, p.epoch), (topic, [0])), version)
        s.call("nobody", add_partitions(Producer(p.name, -1, -1), (topic, [0])), version)
        s.call("unknown id", add_partitions(Producer(s.name("none"), p.id, p.epoch), (topic, [0])), version)
        s.call("empty id", add_partitions(Producer("", p.id, p.epoch), (topic, [0])), version)
        s.call("empty id, unknown topic", add_partitions(Producer("", p.id, p.epoch), ("no-such-topic", [0])), version)
        s.call("older epoch, no topics", add_partitions(p.older()), version)
        until_ended(s, p, version=1)
        s.call("described, complete", DescribeTransactionsRequest(transactional_ids=[p.name]))
        s.call("the next transaction", add_partitions(p, (topic, [0])), version)
        until_ended(s, p, version=1, commit=False)


def verify_partitions(s: Session) -> None:
    """AddPartitionsToTxn by brokers: verification only and adding, of several transactions."""
    until_coordinator(s)
    topic, other = s.make_topic(partitions=3), s.make_topic("other")
    for version in (4, 5):
        one, two = producer(s, f"one-{version}"), producer(s, f"two-{version}")
        both = [(topic, [0, 1]), (other, [0])]
        s.call("verify what is not there", add_for((one, [(topic, [0])], True)), version)
        s.call("add", add_for((one, both, False)), version)
        s.call("verify", add_for((one, both, True)), version)
        s.call("verify one of two", add_for((one, [(topic, [0, 2])], True)), version)
        s.call("described", DescribeTransactionsRequest(transactional_ids=[one.name]))
        s.call("several", add_for((one, both, True), (two, [(topic, [2])], False)), version)
        s.call("several, one unknown", add_for((one, both, True), (Producer("?", NOBODYS_ID, 0), both, True)), version)
        # The same id twice: Kafka answers the second one's partitions for both.
        s.call("no topics", add_for((one, [], False)), version)
        s.call("no partitions", add_for((one, [(topic, [])], False)), version)
        for only in (True, False):
            said = "verify" if only else "add"
            s.call(f"{said}: unknown partition", add_for((one, [(topic, [0, 9])], only)), version)
            s.call(f"{said}: unknown topic", add_for((one, [("no-such-topic", [0]), (topic, [0])], only)), version)
            s.call(f"{said}: older epoch", add_for((one.older(), both, only)), version)
            s.call(f"{said}: newer epoch", add_for((one.newer(), both, only)), version)
            s.call(
                f"{said}: another producer", add_for((Producer(one.name, one.id + NOBODYS_ID, 0), both, only)), version
            )
            s.call(f"{said}: empty id", add_for((Producer("", one.id, 0), both, only)), version)
        until_ended(s, one, version=1)
        s.call("verify after the end", add_for((one, both, True)), version)


def produce_in_transaction(s: Session) -> None:
    """Produce under a transactional id: with and without the partition added before, each version's way."""
    until_coordinator(s)
    topic = s.make_topic(partitions=3)
    for version in range(3, 14):
        p = producer(s, f"t-{version}")
        s.call("not added", write(s, p, topic, (0, batch(p))), version)
        s.call("described", DescribeTransactionsRequest(transactional_ids=[p.name]))
        until_added(s, p, (topic, [0]))
        s.call("added", write(s, p, topic, (0, batch(p))), version)
        s.call("next", write(s, p, topic, (0, batch(p, 1))), version)
        s.call("again", write(s, p, topic, (0, batch(p, 1))), version)
        s.call("a gap", write(s, p, topic, (0, batch(p, 5))), version)
        s.call("one added, one not", write(s, p, topic, (0, batch(p, 2)), (1, batch(p))), version)
        s.call("no such partition", write(s, p, topic, (8, batch(p))), version)
        s.call("older epoch", write(s, p, topic, (0, batch(p.older(), 3))), version)
        s.call("not transactional", write(s, p, topic, (0, batch(p, 3, transactional=False))), version)
        s.call("without its id", write(s, None, topic, (0, batch(p, 4))), version)
        s.call("an empty id", write(s, None, topic, (0, batch(p, 4)), name=""), version)
        s.call("another's id", write(s, None, topic, (0, batch(p, 4)), name=s.name("none")), version)
        s.call("another's id, not open here", write(s, None, topic, (2, batch(p)), name=s.name("none")), version)
        stranger = Producer(p.name, p.id + NOBODYS_ID, 0)
        s.call("a producer id that is not its own", write(s, stranger, topic, (0, batch(stranger))), version)
        s.call("sequence 5 in a new partition", write(s, p, topic, (2, batch(p, 5))), version)
        s.call("two producers", write(s, p, topic, (0, batch(p, 3)), (1, batch(stranger))), version)
        s.call("newer epoch", write(s, p, topic, (0, batch(p.newer()))), version)
        # Kafka remembers the refused sequence 0 as the earliest that it has seen, and takes no other one until then.
        s.call("next after the newer epoch", write(s, p, topic, (0, batch(p, 5))), version)
        s.call("described at last", DescribeTransactionsRequest(transactional_ids=[p.name]))
        until_ended(s, p, version=1)
        s.call("after the end", write(s, p, topic, (0, batch(p, 3))), version)
        s.call("described after it", DescribeTransactionsRequest(transactional_ids=[p.name]))


def end_transaction(s: Session) -> None:
    """EndTxn: in each state, retried, by others; the epoch that version 5 gives."""
    until_coordinator(s)
    topic = s.make_topic(partitions=2)

    def described(what: str, p: Producer) -> None:
        s.call(what, DescribeTransactionsRequest(transactional_ids=[p.name]))

    for version in range(6):
        s.call("unknown id", end(Producer(s.name("none"), NOBODYS_ID, 0)), version)
        s.call("empty id", end(Producer("", NOBODYS_ID, 0)), version)
        for commit in (True, False):
            way = "commit" if commit else "abort"
            p = producer(s, f"{way}-{version}")
            s.call(f"{way} of nothing", end(p, commit=commit), version)
            p = producer(s, f"{way}-{version}")
            described("described, new", p)
            until_added(s, p, (topic, [0, 1]))
            until_written(s, p, topic, (0, batch(p)), version=11)
            for who, other in (
                ("older", p.older()),
                ("newer", p.newer()),
                ("another", Producer(p.name, p.id + NOBODYS_ID, p.epoch)),
                ("nobody", Producer(p.name, -1, -1)),
            ):
                s.call(f"{way}: {who}", end(other, commit=commit), version)
            answer = s.call(way, end(p, commit=commit), version)
            until_state(s, p.name, "CompleteCommit" if commit else "CompleteAbort")
            described(f"described after {way}", p)
            s.call(f"{way} again", end(p, commit=commit), version)
            s.call(f"the opposite after {way}", end(p, commit=not commit), version)
            s.call("older after it", end(p.older(), commit=commit), version)
            old = Producer(p.name, p.id, p.epoch)
            p.take(answer)
            s.call("the new epoch ends nothing", end(p, commit=commit), version)
            until_state(s, p.name, "CompleteCommit", "CompleteAbort")
            s.call("the new epoch ends nothing, otherwise", end(p, commit=not commit), version)
            until_state(s, p.name, "CompleteCommit", "CompleteAbort")
            described("described after that", p)
            s.call("the old one adds", add_partitions(old, (topic, [0])), 3)
            s.call("the old one writes", write(s, old, topic, (0, batch(old, 1))), 11)
            s.call("the old one writes, version 13", write(s, old, topic, (1, batch(old, 0))), 13)


def next_transactions(s: Session) -> None:
    """Three transactions of version 2 in a row: epochs, sequences that begin again, the last epoch in between."""
    until_coordinator(s)
    topic = s.make_topic(partitions=2)
    p = producer(s)
    for number in range(3):
        # The first writes of a transaction get CONCURRENT_TRANSACTIONS until the markers of the last one are written.
        until_written(s, p, topic, (0, batch(p)), (1, batch(p)))
        s.call("the second batch", write(s, p, topic, (0, batch(p, 1))))
        s.call("of the older epoch", write(s, p.older(), topic, (0, batch(p.older(), 2))))
        s.call("described", DescribeTransactionsRequest(transactional_ids=[p.name]))
        answer = s.call("end", end(p, commit=number != 1))
        until_state(s, p.name, "CompleteCommit" if number != 1 else "CompleteAbort")
        p.take(answer)
        s.call("described after it", DescribeTransactionsRequest(transactional_ids=[p.name]))
    s.call("asks who it is", init(p.name, producer_id=p.id, producer_epoch=p.epoch))


SCRIPTS = (
    find_transaction_coordinator,
    init_producer_id,
    init_during_transaction,
    add_to_transaction,
    verify_partitions,
    produce_in_transaction,
    end_transaction,
    next_transactions,
)
