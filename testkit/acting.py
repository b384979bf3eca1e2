"""A mark for tests that show the effect of a configuration key: `@acts(topic=("retention.ms",))` on the function.

tests/config/test_acting.py reads the decorators and compares them with the rows in pykbroker/config/keys/. A row has
`acts` exactly if a test claims the key. A claim needs a value other than the default. While the test runs, every text
that becomes a value is noted, in this process and in the files that are written for others (`note`). A claim without
such a text fails the test.

`PYKBROKER_WITHOUT=broker:the.key` removes the key's effect, because every text of it reads as the default. A test that
claims the key must then fail; tests/config/test_claims.py tries each.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import ParamSpec
from unittest import mock

from pykbroker.config.key_table import DYNAMIC_ONLY_KEYS, GROUP_KEYS, STATIC_KEYS, TOPIC_KEYS
from pykbroker.config.kinds import PER_GROUP, PER_TOPIC, Key, Required, Value

P = ParamSpec("P")
Claim = tuple[str, str]

TABLES: Mapping[str, Mapping[str, Key]] = {
    "broker": STATIC_KEYS | DYNAMIC_ONLY_KEYS,
    "topic": TOPIC_KEYS,
    "group": GROUP_KEYS,
}
_parse = Key.parse
_seen: set[Claim] = set()


def acts(
    *,
    broker: tuple[str, ...] = (),
    topic: tuple[str, ...] = (),
    group: tuple[str, ...] = (),
    run_shows: Callable[[Mapping[str, object]], Collection[str]] | None = None,
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Claim the keys, as literals, whose effect the test asserts. `run_shows(parameters)` returns the keys that one run
    of a parametrized test shows."""
    claimed = (
        [("broker", key) for key in broker] + [("topic", key) for key in topic] + [("group", key) for key in group]
    )

    def mark(function: Callable[P, None]) -> Callable[P, None]:
        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            shown = claimed if run_shows is None else [each for each in claimed if each[1] in run_shows(kwargs)]
            with noted() as seen:
                function(*args, **kwargs)
            missing = [" ".join(each) for each in shown if each not in seen]
            assert not missing, f"nothing but the default was given to {', '.join(missing)}"

        return run

    return mark


def _without() -> Claim:
    scope, _, key = os.environ.get("PYKBROKER_WITHOUT", "").partition(":")
    return scope, key


@contextlib.contextmanager
def noted() -> Iterator[set[Claim]]:
    """The keys that are given a value other than their default, from here on."""
    without = _without()

    def parse(key: Key, text: str) -> Value:
        claim = (_scope(key), key.name)
        value = _parse(key, text)
        if value != key.default:
            _seen.add(claim)
            if claim == without and not isinstance(key.default, Required):
                return key.default
        return value

    _seen.clear()
    with mock.patch.object(Key, "parse", parse):
        yield _seen


def note(texts: Mapping[str, object]) -> dict[str, object]:
    """Properties that are to be written for another process, as they are to be written."""
    for name, text in texts.items():
        key = STATIC_KEYS.get(name)
        if key is not None and _parse(key, str(text)) != key.default:
            _seen.add(("broker", name))
    return {name: text for name, text in texts.items() if ("broker", name) != _without()}


def _scope(key: Key) -> str:
    return {PER_TOPIC: "topic", PER_GROUP: "group"}.get(key.dynamic, "broker")
