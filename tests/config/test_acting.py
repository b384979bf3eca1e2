"""A key acts if and only if a test shows its effect and claims it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.config.key_table import DYNAMIC_ONLY_KEYS, GROUP_KEYS, STATIC_KEYS, TOPIC_KEYS
from pykbroker.config.kinds import Key
from testkit.acting import acts
from tests.parsed import parsed

TESTS = Path(__file__).parents[1]


def claims(scope: str) -> Iterator[tuple[str, str]]:
    """Return (key, test) of every `@acts(<scope>=(...))` under tests/."""
    return ((key, test) for key, _, test in claims_with_paths(scope))


def claims_with_paths(scope: str) -> Iterator[tuple[str, Path, str]]:
    """Yield (key, file, test) for the same claims."""
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "@acts(" not in source:
            continue
        for node in ast.walk(parsed(path)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "acts":
                    for keyword in decorator.keywords:
                        if keyword.arg == scope:
                            yield from ((key, path, node.name) for key in ast.literal_eval(keyword.value))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scope", "table"),
    [("broker", STATIC_KEYS | DYNAMIC_ONLY_KEYS), ("topic", TOPIC_KEYS), ("group", GROUP_KEYS)],
)
def test_the_list_is_what_tests_claim(scope: str, table: dict[str, Key]) -> None:
    claimed = {key for key, _ in claims(scope)}
    assert claimed <= table.keys()
    listed = {name for name, key in table.items() if key.acts}
    assert claimed == listed, f"not listed: {sorted(claimed - listed)}; without a test: {sorted(listed - claimed)}"


def test_a_claim_with_nothing_but_the_default_fails() -> None:
    def function(partitions: str, retention: str) -> None:
        STATIC_KEYS["num.partitions"].parse(partitions)
        TOPIC_KEYS["retention.ms"].parse(retention)

    shows = acts(broker=("num.partitions",), topic=("retention.ms",))(function)  # not a decorator, so it claims nothing
    shows("2", "5")
    with pytest.raises(AssertionError, match=r"default was given to broker num\.partitions$"):
        shows("1", "5")
    with pytest.raises(AssertionError, match=r"broker num\.partitions, topic retention\.ms$"):
        shows("1", "604800000")
