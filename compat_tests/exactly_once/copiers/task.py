"""The task of every copier, in whatever language, and its output.

A copier is started with one argument, a JSON object with the fields below. It reads the input with read_committed. For
each handful of records it begins a transaction, writes every value with "!" appended to the same partition of the
output, adds the offsets of its group, and commits. It aborts one transaction in four on purpose and reads the same
records again. It prints a line of JSON for each: {"did": "committed", "records": 7}, {"did": "aborted"}, and {"did":
"assigned", "partitions": [0]}. If the client calls an error abortable, it aborts; on every other error it ends with
status 1.
"""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Task:
    bootstrap: str
    source: str
    target: str
    group: str
    transactional_id: str
    #: "classic", "consumer" (KIP-848), or "assign": these partitions without a membership
    protocol: str
    partitions: list[int] = field(default_factory=list)
    session_timeout_ms: int = 2000
    #: franz-go asks for committed offsets before it has a producer id. Until then the transaction that the killed
    #: copier left open continues, and the offsets are not stable.
    transaction_timeout_ms: int = 6000
    at_most: int = 20

    @classmethod
    def from_arguments(cls) -> Task:
        return cls(**json.loads(sys.argv[1]))


def say(did: str, **fields: object) -> None:
    print(json.dumps({"did": did, **fields}), flush=True)


def wants_abort() -> bool:
    return random.random() < 0.25
