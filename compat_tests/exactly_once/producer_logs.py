"""Finds lines in a producer's log which show that nodes do not agree about a transaction."""

from __future__ import annotations

import re
from collections import defaultdict

#: In the form of error codes and of Java's classes.
NEVER = ("INVALID_TXN_STATE", "InvalidTxnState", "OUT_OF_ORDER_SEQUENCE", "OutOfOrderSequence")
#: A batch that Java's producer sends again.
_AGAIN = re.compile(r"on topic-partition (\S+), retrying .* Error: (\w+)")
#: The later batches of a transaction whose first one was refused, on Apache Kafka too (test_next_transaction.py).
_FOLLOWS = {"OUT_OF_ORDER_SEQUENCE_NUMBER": ("CONCURRENT_TRANSACTIONS", "OUT_OF_ORDER_SEQUENCE_NUMBER")}


def disagreements(log: str) -> list[str]:
    """Return the lines with an error of NEVER, without batches that are out of order only because the one before was
    refused with CONCURRENT_TRANSACTIONS, and that are sent again."""
    last: dict[str, str] = defaultdict(str)
    found = []
    for line in log.splitlines():
        again = _AGAIN.search(line)
        is_explained = False
        if again is not None:
            partition, error = again.groups()
            is_explained = last[partition] in _FOLLOWS.get(error, ())
            # An unexplained error explains no later one.
            last[partition] = error if is_explained or error not in _FOLLOWS else ""
        if not is_explained and any(word in line for word in NEVER):
            found.append(line)
    return found
