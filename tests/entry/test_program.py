"""The program without the packages of the tools: what it runs by itself, and what it says of every other word."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from pykbroker import __version__
from pykbroker.entry.own_commands import OWN_COMMANDS
from testkit.nodes.processes import environment

#: `None` in place of a module is what Python has for one that cannot be imported.
PROGRAM = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))
from pykbroker.__main__ import main
status = main(json.loads(sys.argv[2]))
print("\\n" + json.dumps(sorted(name for name, module in sys.modules.items() if module is not None)))
sys.exit(status)
"""


def run_without(missing: list[str], *words: str) -> tuple[int, str, str, set[str]]:
    """Exit status, both outputs, and the modules that were loaded at the end."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(missing), json.dumps(words)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    out, _, loaded = done.stdout.rstrip("\n").rpartition("\n")
    return done.returncode, out, done.stderr, set(json.loads(loaded))


TOOLS = ["click", "rich", "kafka"]


@pytest.mark.parametrize("word", ["topics", "generate", "strat", "storage"])
def test_another_word_says_what_to_install(word: str) -> None:
    status, out, err, loaded = run_without(TOOLS, word, "list")
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith(f"pykbroker: `pykbroker {word}` needs more packages: pip install 'click")
    assert not any(name.startswith("pykbroker.tools") for name in loaded)


def test_a_package_that_is_missing_beside_the_others() -> None:
    """An application that has click, or another kafka-python, need not have what a command asks for."""
    status, _, err, _ = run_without(["kafka"], "produce", "t", "-b", "127.0.0.1:1")
    assert status == 2
    assert err.startswith("pykbroker: `pykbroker produce` needs more packages: pip install 'click")


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"]])
def test_its_help_names_its_commands(words: list[str]) -> None:
    status, out, err, _ = run_without(TOOLS, *words)
    assert (status, err) == (0, "")
    for name, text in OWN_COMMANDS.items():
        assert f"  {name:<8}  {text}" in out
    assert "The other commands need more packages: pip install" in out


@pytest.mark.parametrize("words", [["version"], ["--version"]])
def test_the_version(words: list[str]) -> None:
    status, out, _, _ = run_without(TOOLS, *words)
    assert (status, out.split()[-1]) == (0, __version__)


@pytest.mark.parametrize("command", sorted(OWN_COMMANDS))
def test_its_own_commands_show_their_help_and_load_no_tool(command: str) -> None:
    status, out, _, loaded = run_without([], command, "--help")
    assert status == 0
    assert out.startswith(f"Usage: pykbroker {command} [OPTIONS]")
    assert f"  {OWN_COMMANDS[command]}" in out
    assert not loaded & {*TOOLS, "uvloop", "pykbroker.tools", "pykbroker.node"}


def test_a_probe_loads_next_to_nothing() -> None:
    """A container engine runs it every two seconds."""
    status, _, err, loaded = run_without([], "health", "--socket", "/nowhere")
    assert (status, err) == (1, "pykbroker: no node answers at /nowhere: No such file or directory\n")
    assert not loaded & {*TOOLS, "asyncio", "uvloop", "pykbroker.tools", "pykbroker.node", "pykbroker_wire"}
    assert {name for name in loaded if name.startswith("pykbroker")} == {
        "pykbroker",
        "pykbroker.__main__",
        "pykbroker.config",
        "pykbroker.config.nearest",
        "pykbroker.entry",
        "pykbroker.entry.command_parser",
        "pykbroker.entry.data_dirs",
        "pykbroker.entry.failures",
        "pykbroker.entry.health",
        "pykbroker.entry.own_commands",
        "pykbroker.socket_paths",
    }
