"""A key acts exactly when a test shows its effect and says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from pykbroker.config import acting
from pykbroker.config.table import DYNAMIC_ONLY_KEYS, GROUP_KEYS, STATIC_KEYS, TOPIC_KEYS

TESTS = Path(__file__).parents[1]


def claims(scope: str) -> Iterator[tuple[str, str]]:
    """(key, test) of every `@acts(<scope>=(...))` under tests/."""
    for path in sorted(TESTS.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "@acts(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                continue
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", "") == "acts":
                    for keyword in decorator.keywords:
                        if keyword.arg == scope:
                            yield from ((key, node.name) for key in ast.literal_eval(keyword.value))


@pytest.mark.parametrize(
    ("scope", "listed", "table"),
    [
        ("broker", acting.BROKER, STATIC_KEYS | DYNAMIC_ONLY_KEYS),
        ("topic", acting.TOPIC, TOPIC_KEYS),
        ("group", acting.GROUP, GROUP_KEYS),
    ],
)
def test_the_list_is_what_tests_claim(scope: str, listed: frozenset[str], table: dict[str, object]) -> None:
    claimed = {key for key, _ in claims(scope)}
    assert claimed <= table.keys()
    assert claimed == listed, f"not listed: {sorted(claimed - listed)}; without a test: {sorted(listed - claimed)}"
