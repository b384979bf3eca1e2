"""The states of a transactional id, and the states that may follow each.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -+
      ^        |                                         |
      |        +------> PrepareAbort --> CompleteAbort --+
      +--------------------------------------------------+   (and Ongoing or, KIP-890, PrepareAbort again)

A transition that is not in FOLLOWS raises. The numbers are written into `__transaction_state`, and clients read the
names. Two of the numbers are never written: a fenced transaction goes to PrepareAbort in one step here, and an expired
id is a tombstone. They are listed because ListTransactions accepts their names.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        return _NAMES[self]


_NAMES: Final = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

BY_NAME: Final = {name: state for state, name in _NAMES.items()}

EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT

#: The transaction is decided and written, and its markers are on their way.
PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
#: No transaction is open.
IDLE: Final = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})

#: A client that does not know the outcome of its transaction may abort one that it has not begun (KIP-890). So
#: PrepareAbort follows the idle states.
FOLLOWS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT}),
}


class IllegalTransition(AssertionError):
    """A bug: the operation had to be refused."""


def check_transition(before: TransactionState, after: TransactionState) -> None:
    if after not in FOLLOWS.get(before, ()):
        raise IllegalTransition(f"{before.name} is not followed by {after.name}")
