"""Rules for the lower layers: no operating system outside of os_disk/, no event loops, no clocks, no randomness."""

from __future__ import annotations

import ast
import pathlib

import pytest

from tests.parsed import imported, parsed

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = {
    "wire": ROOT / "wire" / "pykbroker_wire",
    "log": ROOT / "log" / "pykbroker_log",
    "raft": ROOT / "raft" / "pykbroker_raft",
}
NEVER = {
    "asyncio",
    "socket",
    "ssl",
    "threading",
    "uvloop",
    "time",
    "random",
    "concurrent",
    "multiprocessing",
    "subprocess",
}
DOOR = "os_disk"
ONLY_IN_DISK = {"os", "mmap", "ctypes", "fcntl", "shutil", "tempfile", "pathlib", "io"}


def sources(layer: str) -> list[pathlib.Path]:
    """The source files without the generated messages, which come from one template and take seconds to parse."""
    return sorted(path for path in PACKAGES[layer].rglob("*.py") if path.parent.name not in ("messages", "stored"))


def packages_of(tree: ast.AST) -> set[str]:
    """Return the packages that a module imports."""
    return {name.partition(".")[0] for name in imported(tree)}


def calls_open(tree: ast.AST) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open"
        for node in ast.walk(tree)
    )


@pytest.mark.slow
@pytest.mark.parametrize("layer", sorted(PACKAGES))
def test_lower_layers_know_neither_time_nor_chance(layer: str) -> None:
    for path in sources(layer):
        forbidden = packages_of(parsed(path)) & NEVER
        if layer == "raft":
            # Randomness is passed in as a `random.Random`, whose type must be imported.
            forbidden -= {"random"}
        assert not forbidden, f"{path.relative_to(ROOT)} imports {sorted(forbidden)}"


@pytest.mark.parametrize("layer", ["log", "raft"])
def test_one_door_to_the_disk(layer: str) -> None:
    for path in sources(layer):
        if path.parent.name == DOOR:
            continue
        tree = parsed(path)
        forbidden = packages_of(tree) & ONLY_IN_DISK
        assert not forbidden, f"{path.relative_to(ROOT)} imports {sorted(forbidden)}"
        assert not calls_open(tree), f"{path.relative_to(ROOT)} calls open()"


def test_log_knows_only_wire() -> None:
    for path in sources("log"):
        ours = {name for name in packages_of(parsed(path)) if name.startswith("pykbroker")}
        assert ours <= {"pykbroker_wire", "pykbroker_log"}, path


def test_files_stay_readable() -> None:
    for path in sources("log"):
        assert len(path.read_text().splitlines()) < 750, f"{path.name} wants a second room"
