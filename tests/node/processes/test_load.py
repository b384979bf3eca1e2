"""The actions that the clients of load.py must have done before a test counts them as continuing."""

from __future__ import annotations

from testkit.nodes.load import Load, progress_of
from testkit.torture.journal import Transaction


class Nowhere:
    bootstrap = "localhost:1"


def test_aborted_transactions_are_no_progress_because_nothing_is_read_of_them() -> None:
    load = Load(Nowhere(), [])
    writer = load.transact("id", "topic")
    writer.done += [Transaction(0, outcome=False), Transaction(3, outcome=None)]
    assert progress_of(writer) == 0
    writer.done.append(Transaction(5, outcome=True))
    assert progress_of(writer) == 1
