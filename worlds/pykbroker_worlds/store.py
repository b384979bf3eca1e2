"""A store outside of the applications, as a database is: it survives when they die, and its transactions can fail.

Responsible for atomic changes and for their failures. A reader sees what was committed. If a key that a transaction has
read or written was changed by another one in the meantime, its commit fails with StoreConflict (serializable, as a
database with optimistic locks).
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

_ABSENT = object()
#: Seconds of the way to the store or back.
_WAY_SECONDS = (0.0002, 0.002)


class StoreError(ConnectionError):
    """The store did not do what it was asked for, or its answer was lost: whether it has committed is unknown."""


class StoreConflict(StoreError):
    """Another transaction changed a key that this one had read or written. Nothing was committed."""


class Rows(MutableMapping[Any, Any]):
    """The content of the store as one transaction sees it. Change it in place, also the values that it returns."""

    def __init__(self, stored: Mapping[Any, Any]) -> None:
        self._stored = stored
        #: keys that were touched -> as they were stored then, and as they are in this transaction
        self._before: dict[Any, Any] = {}
        self._here: dict[Any, Any] = {}
        #: effects that happen with the commit
        self.effects: list[tuple[str, Any]] = []

    def did(self, what: str, key: Any = None) -> None:
        """Record an effect that happens if and when this transaction is committed, as `world.did` does at once."""
        hash(key)  # as `world.did`
        self.effects.append((what, key))

    def _touch(self, key: Any) -> Any:
        if key not in self._before:
            found = self._stored.get(key, _ABSENT)
            self._before[key] = found
            # A list that a block changes in place must not change the store before the commit.
            self._here[key] = found if found is _ABSENT else copy.deepcopy(found)
        return self._here[key]

    def __getitem__(self, key: Any) -> Any:
        found = self._touch(key)
        if found is _ABSENT:
            raise KeyError(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        self._touch(key)
        self._here[key] = value

    def __delitem__(self, key: Any) -> None:
        if self._touch(key) is _ABSENT:
            raise KeyError(key)
        self._here[key] = _ABSENT

    def __iter__(self) -> Iterator[Any]:
        """Touches every key, because what a transaction does next may depend on all of them."""
        for key in [*self._stored]:
            self._touch(key)
        return iter([key for key, value in self._here.items() if value is not _ABSENT])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def conflicts(self) -> list[str]:
        """Return the touched keys whose stored value is another one now."""
        return [repr(key) for key, value in self._before.items() if self._stored.get(key, _ABSENT) is not value]

    def changes(self) -> Iterator[tuple[Any, Any]]:
        """Yield keys whose value is another one at the end, with a copy of it, `_ABSENT` for one that was removed."""
        for key, value in self._here.items():
            if value is _ABSENT or self._before[key] is _ABSENT or value != self._before[key]:
                yield key, value if value is _ABSENT else copy.deepcopy(value)


class Store(Mapping[Any, Any]):
    """A dict that survives applications. `async with store.transaction() as rows: rows[key] = value` changes it."""

    def __init__(
        self,
        rng: random.Random,
        is_over: Callable[[], bool] = lambda: False,
        did: Callable[[str, Any], None] = lambda _what, _key: None,
    ) -> None:
        """`is_over`: True after the end of the world. `did` records the effects of committed transactions."""
        self._rng = rng
        self._is_over = is_over
        self._did = did
        self._rows: dict[Any, Any] = {}
        #: the share of transactions that fail
        self.fail_share = 0.0
        #: how many transactions were committed
        self.commits = 0

    def __getitem__(self, key: Any) -> Any:
        return copy.deepcopy(self._rows[key])

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._rows))

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Store({self._rows!r})"

    def fail(self, share: float) -> None:
        """From now on let this share of the transactions fail, from 0 to 1. Half of those that fail have committed, and
        their answer is lost."""
        if not 0 <= share <= 1:
            raise ValueError(f"a share is from 0 to 1, not {share!r}")
        self.fail_share = share

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Rows]:
        """Begin a transaction, and commit it at the end of the block unless the block raises. Raises StoreError, whose
        outcome is unknown, and StoreConflict."""
        await self._way()
        rows = Rows(self._rows)
        yield rows
        await self._way()
        fails = self._rng.random() < self.fail_share
        if fails and self._rng.random() < 0.5:
            raise StoreError("the store did not answer")
        if conflicts := rows.conflicts():
            raise StoreConflict(f"another transaction changed {', '.join(conflicts)}")
        if not self._is_over():
            for key, value in list(rows.changes()):
                if value is _ABSENT:
                    self._rows.pop(key, None)
                else:
                    self._rows[key] = value
            self.commits += 1
            for what, key in rows.effects:
                self._did(what, key)
        await self._way()
        if fails:
            raise StoreError("the answer of the store was lost")

    async def _way(self) -> None:
        await asyncio.sleep(self._rng.uniform(*_WAY_SECONDS))
