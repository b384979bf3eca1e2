"""The house as a whole: modules of one noun, one name for one thing, and imports that go in no circle.

`tests/log/test_house.py` has the rules for the lower layers.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.parsed import parsed

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "pykbroker": ROOT / "pykbroker",
    "pykbroker_log": ROOT / "log/pykbroker_log",
    "pykbroker_raft": ROOT / "raft/pykbroker_raft",
    "pykbroker_wire": ROOT / "wire/pykbroker_wire",
    "pykbroker_worlds": ROOT / "worlds/pykbroker_worlds",
}
#: Their names are Apache Kafka's.
GENERATED = ("pykbroker_wire.messages", "pykbroker_wire.stored")


def modules() -> dict[str, Path]:
    """Every module by its full name; a package is its `__init__`."""
    found = {}
    for package, home in PACKAGES.items():
        for path in sorted(home.rglob("*.py")):
            parts = path.relative_to(home).with_suffix("").parts
            found[".".join((package, *(part for part in parts if part != "__init__")))] = path
    return found


MODULES = modules()


def is_generated(module: str) -> bool:
    return module.startswith(tuple(f"{room}." for room in GENERATED))


def public_classes(module: str) -> Iterator[str]:
    """Classes, and aliases that stand for a type."""
    for node in parsed(MODULES[module]).body:
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names = [node.target.id]
        else:
            continue
        yield from (name for name in names if len(name) > 1 and name[0].isupper() and not name.isupper())


def twice(places: dict[str, list[str]]) -> dict[str, list[str]]:
    return {name: found for name, found in places.items() if len(found) > 1}


# -- one module, one noun ---------------------------------------------------------------------------------------------

MOST_LINES = 600
#: Hand-written modules that are longer, and why.
LONGER = {
    "pykbroker_log.partition_log": "its parts are modules already; what is left is the list of what a log does",
}


def test_no_module_passes_six_hundred_lines() -> None:
    written = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items() if not is_generated(name)}
    lines = {name: text.count("\n") for name, text in written.items() if "do not edit" not in text[:400]}
    assert len(lines) > 300
    longer = {name for name, count in lines.items() if count > MOST_LINES}
    assert not longer - LONGER.keys(), "look for the second noun"
    assert not LONGER.keys() - longer, "no longer an exception"


# -- one name, one thing ----------------------------------------------------------------------------------------------

#: A simulated world has what the real one has: a network, a quorum, faults. So its classes have the same names.
WORLDS = "pykbroker_worlds"


def house_of(module: str) -> str:
    """Return the tools, testing or the worlds, or an empty text for the broker."""
    return next((each for each in ("pykbroker.tools", "pykbroker.testing", WORLDS) if module.startswith(each)), "")


WIRE = "the protocol's struct of the same thing"
#: Names that stand in several modules with one meaning.
SAME_CLASS = {
    "AbortedTxn": "an entry of the index of aborted transactions, and Apache Kafka's schema of it",
    "Assignment": WIRE,
    "BrokerState": WIRE,
    "Buffer": "what holds bytes; wire/ and log/ declare it for their own contracts",
    "ConfigResource": WIRE,
    "Endpoint": "where a listener is reached; raft/ knows no security protocol",
    "IllegalTransition": "a bug: a transition that is not in the table of the states",
    "Listener": WIRE,
    "Member": WIRE,
    "Node": WIRE,
    "ProducerEntry": WIRE,
    "RequestHeader": WIRE,
    "Result": "what an operation has decided, in a controller and in a coordinator",
    "TopicPartition": "a topic's name and a partition's number",
    "TransactionState": WIRE,
    "Verifier": "what the transaction coordinator has, and its protocol for groups, which come before it",
}
SAME_MODULE = {
    "__main__": "the program, and the entry of Apache Kafka's tools",
    "acls": "what the controller changes, what is asked, the tool, and the command",
    "alter_partition": "the API, and the controller's decision",
    "balance": "the room, the command, and how an assignor of groups evens out",
    "bench": "the load that a person asks for, and the command",
    "cluster": "nodes in one process, for tests, the tool, and the command",
    "configs": "of resources: changed by the controller, read by a coordinator, asked for, the tool, and the command",
    "coordination": "keys, and their texts",
    "dead_letters": "the room that writes them, and the interface by which leaders ask it",
    "describe_quorum": "the API, and the quorum's answer",
    "delete_records": "the API, and the tool",
    "disk": "the contract, and the operating system's",
    "features": "what is supported, the controller's decision to change it, and the tool",
    "format": "the command, and what it does",
    "group": "the configuration of groups, and the groups",
    "groups": "what is asked of them, and the command",
    "log_dirs": "the directories of a log, and the tool",
    "logs": "the logs of a node, and the command",
    "metadata": "the API, and the room that it tells of",
    "missing": "records that are gone: found in log/, told by the node",
    "node": "the room, and its class",
    "produce": "the API, and the command",
    "records": "records of each kind of log, and the record of a batch",
    "reference": "a page of docs/, generated from the room's table",
    "result": "what an operation has decided, in a controller and in a coordinator",
    "scoped": "keys, and their texts",
    "security": "the room, its keys, and their texts",
    "server": "keys, and their texts",
    "service": "one for each kind of coordinator",
    "settings": "what a room reads of the configuration, once: the groups, and TLS",
    "shard": "one for each kind of coordinator",
    "share": "share groups, and the state of their partitions: a room of each of the two coordinators",
    "share_groups": "what is asked of them, and the tool",
    "states": "a table of states and their transitions",
    "storage": "the room, its keys, and their texts",
    "transactions": "what a client asks, the tool, and the command",
    "quorum": "the room, and the command",
    "tls": "the room, and the command",
    "topics": "the controller's topics, what of them a coordinator follows, what is asked, the tool, and the command",
}


@pytest.mark.slow
def test_no_two_classes_of_one_name_with_different_meaning() -> None:
    written: dict[str, list[str]] = defaultdict(list)
    generated: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        if house_of(module) == WORLDS:
            continue
        for name in public_classes(module):
            (generated if is_generated(module) else written)[name].append(module)
    # Messages repeat the names of their structs among each other: they are Apache Kafka's.
    everywhere = {name: found + generated.get(name, []) for name, found in written.items()}
    unexplained = {name: found for name, found in twice(everywhere).items() if name not in SAME_CLASS}
    assert not unexplained
    assert not SAME_CLASS.keys() - twice(everywhere).keys(), "no longer an exception"


def test_no_two_modules_of_one_name_with_different_meaning() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for module in MODULES:
        if not is_generated(module) and house_of(module) != WORLDS:
            places[module.rpartition(".")[2]].append(module)
    unexplained = {name: found for name, found in twice(places).items() if name not in SAME_MODULE}
    assert not unexplained
    assert not SAME_MODULE.keys() - twice(places).keys(), "no longer an exception"


# -- names that differ by an ending -----------------------------------------------------------------------------------

#: The longest that fits is taken off a word of a name.
ENDINGS = [
    "ations",
    "ation",
    "ments",
    "ment",
    "ables",
    "able",
    "ions",
    "ion",
    "ings",
    "ing",
    "ance",
    "ers",
    "er",
    "ors",
    "or",
    "ed",
    "es",
    "al",
    "s",
    "e",
]
LEAST_STEM = 3
#: Names that differ by an ending only, and why a reader takes none for another.
SAME_STEM = {
    ("Assignment", "Assignor"): "Apache Kafka's words: an assignor makes assignments",
    ("File", "Filled"): "two words",
    ("HostAndPort", "HostsAndPorts"): "two kinds of values: a list of the other",
    ("Settled", "Settlement"): "a request that is settled in part, and the states of records after a lock",
    ("segment", "segments"): "one, and those of a log in order",
    ("SharePartition", "SharedPartitions"): "Kafka's class of a leader, and partitions of a share group",
    ("TopicDelta", "TopicsDelta"): "Apache Kafka's words: the changes of one topic, and of all",
    ("TopicImage", "TopicsImage"): "Apache Kafka's names: the second holds the first",
}


def words(name: str) -> list[str]:
    """Return the words in the name of a class or of a module."""
    if name.islower():
        return name.split("_")
    return re.findall(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z]+", name)


def stem(word: str) -> str:
    found = word.lower()
    for ending in ENDINGS:
        if found.endswith(ending) and len(found) - len(ending) >= LEAST_STEM:
            found = found.removesuffix(ending)
            break
    if len(found) > LEAST_STEM and found[-1] == found[-2]:
        # A consonant is doubled before an ending: running, planned.
        found = found[:-1]
    return found.rstrip("e") if len(found) > LEAST_STEM else found


def same_stems(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The pairs that differ by the endings of their words only."""
    by_stems: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for name in names:
        by_stems[tuple(map(stem, words(name)))].add(name)
    for found in by_stems.values():
        yield from combinations(sorted(found), 2)


def test_what_differs_by_an_ending() -> None:
    names = ("early_fence", "early_fencing", "Flusher", "Flushing", "Planner", "Planned", "Fetch", "FetchSession")
    assert sorted(same_stems(names)) == [
        ("Flusher", "Flushing"),
        ("Planned", "Planner"),
        ("early_fence", "early_fencing"),
    ]


@pytest.mark.slow
def test_no_two_names_differ_by_an_ending_only() -> None:
    """Modules of one room, and classes of one house. The plural of a name may stand for a
    collection: the module that has it knows the singular."""
    rooms: dict[str, list[str]] = defaultdict(list)
    classes: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for module in MODULES:
        if is_generated(module):
            continue
        room, _, name = module.rpartition(".")
        rooms[room].append(name)
        for each in public_classes(module):
            classes[house_of(module)][each].append(module)
    found = {pair for names in rooms.values() for pair in same_stems(names)}
    for homes in classes.values():
        for one, other in same_stems(homes):
            known = (re.search(rf"\b{one}\b", MODULES[home].read_text(encoding="utf-8")) for home in homes[other])
            if other != f"{one}s" or not all(known):
                found.add((one, other))
    assert not found - SAME_STEM.keys()
    assert not SAME_STEM.keys() - found, "no longer an exception"


# -- one definition ---------------------------------------------------------------------------------------------------


def defined(module: str) -> set[str]:
    """The constants that a module defines itself, without an underscore before the name."""
    names: set[str] = set()
    for node in parsed(MODULES[module]).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {name.lstrip("_") for name in names if name.isupper()}


def zero_uuids(module: str) -> list[int]:
    """The lines that say `bytes(16)`."""
    return [
        node.lineno
        for node in ast.walk(parsed(MODULES[module]))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "bytes"
        and [ast.unparse(argument) for argument in node.args] == ["16"]
    ]


@pytest.mark.slow
def test_the_layout_of_a_batch_and_the_zero_uuid_are_defined_once() -> None:
    layout = "pykbroker_wire.records.layout"
    once = dict.fromkeys(defined(layout), layout) | {"ZERO_UUID": "pykbroker_wire.primitives"}
    assert {"HEADER_SIZE", "MAGIC_AT", "CRC_START", "CONTROL"} <= once.keys()
    written = [module for module in MODULES if not is_generated(module)]
    again = {
        f"{module}: {name}" for module in written for name in defined(module) & once.keys() if once[name] != module
    }
    assert not again
    assert [module for module in written if zero_uuids(module)] == ["pykbroker_wire.primitives"]


# -- typed handlers ---------------------------------------------------------------------------------------------------

UNTYPED = {"Any", "cast"}


def untyped(tree: ast.Module) -> list[int]:
    """The lines that give a type up."""
    names = [
        node
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in UNTYPED)
        or (isinstance(node, ast.Attribute) and node.attr in UNTYPED)
        or (isinstance(node, ast.alias) and node.name in UNTYPED)
    ]
    return sorted(node.lineno for node in names)


def test_no_handler_gives_a_type_up() -> None:
    assert untyped(ast.parse("from typing import Any\nimport typing as t\nx: t.Any = t.cast(int, 1)")) == [1, 3, 3]
    handlers = [path for module, path in MODULES.items() if module.startswith("pykbroker.api.")]
    assert len(handlers) > 60
    assert not {path.name: lines for path in handlers if (lines := untyped(parsed(path)))}


# -- imports ----------------------------------------------------------------------------------------------------------


def imported(module: str, *, with_types: bool = False) -> set[str]:
    """The modules of ours that importing this one runs: not those in functions, and those for types only if asked."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    pending: list[ast.stmt] = list(parsed(MODULES[module]).body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])
            found.update(f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base for alias in node.names)
        elif isinstance(node, ast.If):
            is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
            pending += node.orelse if is_for_types and not with_types else [*node.body, *node.orelse]
        elif isinstance(node, ast.Try):
            pending += [*node.body, *node.orelse, *node.finalbody]
            for handler in node.handlers:
                pending += handler.body
    return {name for name in found if name in MODULES and name != module}


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one member (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for name in graph:
        if name not in order:
            visit(name)
    return found


@pytest.mark.slow
def test_no_import_goes_in_a_circle_but_for_types() -> None:
    graph = {module: imported(module) for module in MODULES}
    assert sum(map(len, graph.values())) > 1000
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert not circles(graph)


@pytest.mark.slow
def test_no_circle_of_types_either() -> None:
    """A part that was cut off takes what it needs, and not the whole: it can be had in a test without it."""
    # Without the package itself, which is imported for `pykbroker.__version__`. It imports its own names when used.
    graph = {module: imported(module, with_types=True) - {"pykbroker"} for module in MODULES}
    assert not circles(graph)


@pytest.mark.parametrize(
    ("house", "contract"), [("pykbroker", "Rooms of the node"), ("pykbroker.tools", "Rooms of the tools")]
)
def test_every_room_stands_in_the_contract_of_imports(house: str, contract: str) -> None:
    """A room that no contract names may be imported from anywhere."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["name"] == contract)
    named = {room.strip() for layer in layers for room in re.split("[:|]", layer)}
    rooms = {name for name, path in MODULES.items() if path.name == "__init__.py" and name.rpartition(".")[0] == house}
    assert rooms
    assert rooms == named


def test_no_page_has_the_marks_of_a_merge() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("spark/**/*.md"), *ROOT.glob("docker/**/*.md")]
    assert pages
    marks = ("<<<<<<< ", ">>>>>>> ", "=======")
    torn = [
        f"{page.relative_to(ROOT)}:{number}"
        for page in pages
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if line.startswith(marks[:2]) or line == marks[2]
    ]
    assert torn == []
