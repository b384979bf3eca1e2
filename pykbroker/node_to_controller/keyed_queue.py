"""A queue of reports to the controller, with at most one item for each key. Pure.

The items of a request stay in the queue until its answer comes. An item that the answer names gets its result and is
removed. An item that the answer leaves out, or whose request failed, is sent again. The number of keys bounds the
queue.

The owner chooses the effect of a second item for a key:

* REPLACE means that the newest item counts (directories of replicas). The older item gets `REPLACED` at once instead of
  a result.
* REFUSE means that the second item is not taken, whether the first is queued or in flight. Changes of the ISR use it,
  as in Kafka's AlterPartitionManager: the owner decides again when it has the result of the first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

_Key = TypeVar("_Key", bound=Hashable)
Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class Second(Enum):
    """The effect of a second item for a key."""

    REPLACE = "replace"
    REFUSE = "refuse"


class Superseded(Enum):
    """The result of an item that a newer one replaced."""

    REPLACED = "replaced"


REPLACED = Superseded.REPLACED


@dataclass(slots=True, eq=False)
class _Entry(Generic[Item, Outcome]):
    item: Item
    done: Callable[[Outcome | Superseded], None]


class KeyedQueue(Generic[_Key, Item, Outcome]):
    """`done` of each item is called once, unless the queue is dropped before that."""

    def __init__(self, second: Second) -> None:
        self._second = second
        #: all items, including those in flight, in the order in which they are sent
        self._entries: dict[_Key, _Entry[Item, Outcome]] = {}
        self._in_flight: dict[_Key, _Entry[Item, Outcome]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: _Key) -> bool:
        return key in self._entries

    def offer(self, key: _Key, item: Item, done: Callable[[Outcome | Superseded], None]) -> bool:
        """Queue an item. Return False if it was refused, because an item of this key waits."""
        older = self._entries.get(key)
        if older is not None and self._second is Second.REFUSE:
            return False
        self._entries[key] = _Entry(item, done)
        if older is not None:
            older.done(REPLACED)
        return True

    def take(self, limit: int) -> dict[_Key, Item]:
        """Return the items of the next request. Items that are still in flight are sent again, because their request
        failed."""
        self._in_flight = dict(islice(self._entries.items(), limit))
        return {key: entry.item for key, entry in self._in_flight.items()}

    def answered(self, results: Mapping[_Key, Outcome]) -> None:
        told, self._in_flight = self._in_flight, {}
        finished: list[tuple[_Entry[Item, Outcome], Outcome]] = []
        for key, entry in told.items():
            if self._entries.get(key) is not entry:
                continue
            del self._entries[key]
            if key in results:
                finished.append((entry, results[key]))
            else:
                # Move it to the end of the queue. Otherwise such items could fill every request, and others would never
                # be sent.
                self._entries[key] = entry
        # Call `done` last, because an owner may call `offer` within it.
        for entry, result in finished:
            try:
                entry.done(result)
            except Exception:
                # This is a bug of one owner. The other results must still be passed on, because they come only once.
                logger.exception("The result %s could not be handled", result)
