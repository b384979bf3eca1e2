"""The store outside of the applications: atomic, with conflicts, and with answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker_worlds.simulated.loop import VirtualLoop
from pykbroker_worlds.store import Store, StoreConflict, StoreError


def play(scenario: Callable[[Store], Coroutine[Any, Any, None]], seed: int = 1) -> Store:
    store = Store(Random(seed))
    loop = VirtualLoop()
    try:
        loop.run_until_complete(scenario(store))
    finally:
        loop.close()
    return store


def test_a_transaction_is_seen_as_a_whole_or_not_at_all() -> None:
    async def scenario(store: Store) -> None:
        async with store.transaction() as rows:
            rows["a"], rows["b"] = 1, [2]
            assert not store
        assert dict(store) == {"a": 1, "b": [2]}
        with pytest.raises(ZeroDivisionError):
            async with store.transaction() as rows:
                rows["a"] = 1 // 0
        async with store.transaction() as rows:
            rows["b"].append(3)
            del rows["a"]
            assert store["b"] == [2]
            assert "a" not in rows
            assert len(rows) == 1
        assert dict(store) == {"b": [2, 3]}
        # A reader has a copy.
        store["b"].append(4)
        assert store["b"] == [2, 3]
        async with store.transaction() as rows:
            with pytest.raises(KeyError):
                del rows["a"]
            with pytest.raises(KeyError):
                rows["a"]

    assert play(scenario).commits == 3


def test_a_transaction_that_has_read_what_another_changed_fails() -> None:
    async def scenario(store: Store) -> None:
        async def add(pause: float) -> None:
            async with store.transaction() as rows:
                rows["sum"] = rows.get("sum", 0) + 1
                await asyncio.sleep(pause)

        results = await asyncio.gather(add(1), add(2), return_exceptions=True)
        assert results[0] is None
        assert isinstance(results[1], StoreConflict)
        assert dict(store) == {"sum": 1}

    play(scenario)


def test_who_reads_everything_conflicts_with_a_new_key() -> None:
    async def scenario(store: Store) -> None:
        async with store.transaction() as rows:
            rows["a"] = 1

        async def total() -> None:
            async with store.transaction() as rows:
                rows["total"] = sum(value for key, value in rows.items() if key != "total")
                await asyncio.sleep(2)

        async def change() -> None:
            await asyncio.sleep(1)
            async with store.transaction() as rows:
                rows["a"] = 5

        results = await asyncio.gather(total(), change(), return_exceptions=True)
        assert isinstance(results[0], StoreConflict)

    play(scenario)


def test_half_of_the_failures_have_committed() -> None:
    async def scenario(store: Store) -> None:
        store.fail(1.0)
        for number in range(40):
            with pytest.raises(StoreError):
                async with store.transaction() as rows:
                    rows[number] = True
        assert 5 < len(store) < 35
        store.fail(0.0)
        async with store.transaction() as rows:
            rows["last"] = True
        with pytest.raises(ValueError, match="from 0 to 1"):
            store.fail(2.0)

    play(scenario)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["set", "delete", "add"]), st.booleans()), max_size=12)
)
def test_it_is_a_dict_whose_changes_are_committed_or_not(steps: list[tuple[str, str, bool]]) -> None:
    async def scenario(store: Store) -> None:
        model: dict[str, list[int]] = {}
        for number, (key, action, commits) in enumerate(steps):
            tried = {each: [*value] for each, value in model.items()}
            try:
                async with store.transaction() as rows:
                    for target in (rows, tried):
                        if action == "set":
                            target[key] = [number]
                        elif action == "delete":
                            target.pop(key, None)
                        elif key in target:
                            target[key].append(number)
                    assert dict(rows) == tried
                    if not commits:
                        raise LookupError
            except LookupError:
                tried = model
            model = tried
            assert dict(store) == model

    play(scenario)
