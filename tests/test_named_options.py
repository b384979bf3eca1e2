"""Paths, options that begin with `--` and configuration keys exist, if a page names them in backticks.

tests/test_named_modules.py does the same for modules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from pykbroker.config import key_table
from tests.long_runs import ROOT, git
from tests.parsed import parsed

#: (page, name) and the reason why it names nothing of ours.
APART: Final = {
    ("CONTRIBUTING.md", "wire/schemas/ListThingsRequest.msg"): "an example",
    ("CONTRIBUTING.md", "pykbroker/api/list_things.py"): "an example",
    ("CONTRIBUTING.md", "tests/api/test_list_things.py"): "an example",
    ("docs/client-suites.md", "--docker-image"): "an option of a client's own suite",
    ("docs/cluster.md", "replication.factor"): "a property of a topic, as people write it",
    ("tests/golden/data_directories/README.md", "--detach"): "an option of git",
}
#: The endings of names that are configuration keys, of a broker or of a client.
_KEY_ENDINGS: Final = frozenset(
    [
        "bytes",
        "class",
        "dir",
        "dirs",
        "enable",
        "factor",
        "id",
        "interval",
        "listeners",
        "location",
        "mechanism",
        "ms",
        "name",
        "names",
        "partitions",
        "password",
        "protocol",
        "replicas",
        "size",
        "threads",
        "type",
    ]
)
_SEPARATORS: Final = str.maketrans("[]|,", "    ")


def spans(text: str) -> Iterator[str]:
    """Yield what stands in backticks, without blocks of code."""
    in_block = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            in_block = not in_block
        elif not in_block:
            yield from line.split("`")[1::2]


def options(span: str) -> Iterator[str]:
    for word in span.translate(_SEPARATORS).split():
        name = word.partition("=")[0].rstrip(".…")
        if name.startswith("--") and name[2:3].isalpha():
            yield name


def paths(span: str, tops: set[str]) -> Iterator[str]:
    """Yield a path from the root, without the test in it. A pattern names no path."""
    if "/" in span and span.partition("/")[0] in tops and not set(" *<>{}…").intersection(span):
        yield span.partition("::")[0].rstrip("/")


def keys(span: str) -> Iterator[str]:
    name = span.partition("=")[0].strip()
    is_plain = "." in name and name == name.lower() and not set(" /_<>*").intersection(name)
    if is_plain and name.rpartition(".")[2] in _KEY_ENDINGS:
        yield name


def words_of_the_code(files: list[str]) -> set[str]:
    """Return the words of all literals: the parsers of click and argparse, and the keys that clients get, are made of
    them."""
    found: set[str] = set()
    for file in files:
        if file.endswith(".py"):
            for node in ast.walk(parsed(ROOT / file)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.update(node.value.replace("=", " ").replace(",", " ").replace("/--", " --").split())
    return found


@pytest.mark.slow
def test_each_name_exists() -> None:
    files = git("ls-files").splitlines()
    words = words_of_the_code([file for file in files if not file.endswith("test_named_options.py")])
    known_keys = {*key_table.STATIC_KEYS, *key_table.DYNAMIC_ONLY_KEYS, *key_table.TOPIC_KEYS, *key_table.GROUP_KEYS}
    places = {place for file in files for place in (file, *parents(file))}
    tops = {file.partition("/")[0] for file in files if "/" in file}
    missing: set[tuple[str, str]] = set()
    for page in files:
        text = (ROOT / page).read_text(encoding="utf-8") if page.endswith(".md") else ""
        if page.startswith(("CHANGELOG.md", "changes/")) or "Do not edit. -->" in text[:300]:
            continue
        for span in spans(text):
            missing.update((page, name) for name in options(span) if name not in words)
            missing.update((page, name) for name in paths(span, tops) if name not in places)
            missing.update((page, name) for name in keys(span) if name not in known_keys and name not in words)
    assert missing == APART.keys()


def parents(file: str) -> Iterator[str]:
    while file := file.rpartition("/")[0]:
        yield file


def test_what_is_found_in_a_line() -> None:
    (first, second) = spans("`--all [--reset]` and `tests/node/x.py::test_y`\n```\n`--code`\n```")
    assert list(options(first)) == ["--all", "--reset"]
    assert list(paths(second, {"tests"})) == ["tests/node/x.py"]
    assert list(keys("log.retention.ms=5")) == ["log.retention.ms"]
    assert list(keys("module.py")) == []
