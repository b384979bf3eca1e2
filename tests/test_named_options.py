"""Paths, options that begin with `--` and configuration keys exist, if a page or the head of a module names them in
backticks.

tests/test_named_modules.py does the same for modules, tests/test_dotted_names.py for classes and functions.
"""

from __future__ import annotations

import ast
import re
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
#: The docstring of a module, below comments at most.
_HEAD: Final = re.compile(r'(?:#[^\n]*\n|\n)*"""(.*?)"""', re.DOTALL)
_OPTION: Final = re.compile(r"--[a-z][a-z0-9-]*")
#: characters around a name in a sentence
_AROUND: Final = "`'\"()[],;:."
#: Any word that an option or a key may be.
_WORD: Final = re.compile(r"[\w.-]+")
_SEPARATORS: Final = str.maketrans("[]|,", "    ")


def readers(files: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each page of today with what it has in backticks, and each module with the words of its head, where names
    stand without backticks, too."""
    for file in files:
        if file.startswith(("CHANGELOG.md", "changes/")) or not file.endswith((".md", ".py")):
            continue
        text = (ROOT / file).read_text(encoding="utf-8")
        if file.endswith(".md") and "Do not edit. -->" not in text[:300]:
            yield file, list(spans(text))
        elif file.endswith(".py") and (head := _HEAD.match(text)):
            yield file, [word.strip(_AROUND) for word in head[1].split()]


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
        if _OPTION.fullmatch(name):
            yield name


def paths(span: str, tops: set[str]) -> Iterator[str]:
    """Yield a path from the root, without the test in it. A pattern names no path."""
    if "/" in span and span.partition("/")[0] in tops and not set(" *<>{}…").intersection(span):
        yield span.partition("::")[0].rstrip("/")


def keys(span: str) -> Iterator[str]:
    name = span.partition("=")[0].strip()
    is_plain = "." in name and name == name.lower() and not set(" /_<>*()").intersection(name)
    if is_plain and name.rpartition(".")[2] in _KEY_ENDINGS:
        yield name


def words_of_the_code(files: list[str], wanted: set[str]) -> set[str]:
    """Return the wanted words that a literal has, if it is no docstring: the parsers of click and argparse, and the
    keys that clients get, are made of them. Only files whose text has a word that is still wanted are parsed."""
    found: set[str] = set()
    for file in files:
        if file.endswith(".py"):
            text = (ROOT / file).read_text(encoding="utf-8")
            if not (wanted - found).isdisjoint(_WORD.findall(text.replace("\\n", " "))):
                found |= wanted & words_of_literals(parsed(ROOT / file))
    return found


def words_of_literals(tree: ast.Module) -> set[str]:
    nodes = list(ast.walk(tree))
    docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            found.update(node.value.replace("=", " ").replace(",", " ").replace("/--", " --").split())
    return found


@pytest.mark.slow
def test_each_name_exists() -> None:
    files = git("ls-files").splitlines()
    known_keys = {*key_table.STATIC_KEYS, *key_table.DYNAMIC_ONLY_KEYS, *key_table.TOPIC_KEYS, *key_table.GROUP_KEYS}
    places = {place for file in files for place in (file, *parents(file))}
    tops = {file.partition("/")[0] for file in files if "/" in file}
    missing: set[tuple[str, str]] = set()
    named_words: set[tuple[str, str]] = set()
    for page, named in readers(files):
        for span in named:
            named_words.update((page, name) for name in (*options(span), *keys(span)) if name not in known_keys)
            missing.update((page, name) for name in paths(span, tops) if name not in places)
    sources = [file for file in files if not file.endswith("test_named_options.py")]
    words = words_of_the_code(sources, {name for _, name in named_words})
    missing |= {(page, name) for page, name in named_words if name not in words}
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
