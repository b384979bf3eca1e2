"""The frame of the command line: imports, refusals in one line, exit statuses, the help."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from pykbroker import __version__
from pykbroker.__main__ import main
from pykbroker.tools.commands import reference
from pykbroker.tools.commands.command_group import CommandGroup, summary
from pykbroker.tools.commands.main import program
from testkit.nodes.processes import environment

LEAVES = [pytest.param(ctx, command, id=ctx.command_path) for ctx, command in reference.leaves(program())]
#: Modules that load slowly, and that no help, completion or health check needs.
HEAVY = {
    "asyncio",
    "kafka",
    "rich",
    "uvloop",
    "pykbroker_wire",
    "pykbroker_log",
    "pykbroker.node",
    "pykbroker.tools.cluster",
}


def loaded(words: list[str], env: dict[str, str] | None = None) -> set[str]:
    """Return the modules that one command has imported at its end."""
    code = (
        "import sys, json\nfrom pykbroker.__main__ import main\n"
        "try:\n    main(json.loads(sys.argv[1]))\n"
        "finally:\n    print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    command = [sys.executable, "-c", code, json.dumps(words)]
    done = subprocess.run(command, env=environment(env), capture_output=True, text=True, check=False, timeout=120)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "env", "commands"),
    [
        ([], {}, set()),
        (["--help"], {}, set()),
        (["--version"], {}, set()),
        ([], {"_PYKBROKER_COMPLETE": "bash_complete", "COMP_WORDS": "pykbroker st", "COMP_CWORD": "1"}, set()),
        (
            [],
            {"_PYKBROKER_COMPLETE": "bash_complete", "COMP_WORDS": "pykbroker health --", "COMP_CWORD": "2"},
            {"passed_on"},
        ),
        (["generate", "--help"], {}, {"generate"}),
    ],
)
def test_nothing_is_loaded_that_is_not_needed(words: list[str], env: dict[str, str], commands: set[str]) -> None:
    """This keeps them within a tenth of a second."""
    found = loaded(words, env)
    assert "pykbroker.tools.commands.command_group" in found
    assert not found & HEAVY
    names = {name.replace("-", "_") for name, _ in program().summaries()} | {"passed_on"}
    assert {name for name in names if f"pykbroker.tools.commands.{name}" in found} == commands


@pytest.mark.slow
def test_a_command_that_asks_a_cluster_loads_no_node_and_no_tables_for_terminals() -> None:
    found = loaded(["topics", "list", "-b", "127.0.0.1:1"])
    assert "pykbroker.tools.cluster.asked_cluster" in found
    names = {name.replace("-", "_") for name, _ in program().summaries()} - {"topics"}
    of_others = {name for name in names if f"pykbroker.tools.commands.{name}" in found}
    assert not of_others | found & {"rich", "uvloop", "pykbroker_log", "pykbroker.node", "pykbroker.storage"}
    # Each of these takes longer to load than the requests of the command take.
    assert not found & {"kafka", "asyncio", "ssl", "email"}


def test_alone_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    alone = capsys.readouterr().out
    assert main(["--help"]) == 0
    assert capsys.readouterr().out == alone
    for name, text in program().summaries():
        assert f"  {name} " in alone
        assert " ".join(text.split()[:3]) in alone
    assert main(["generate"]) == 0
    assert "Usage: pykbroker generate" in capsys.readouterr().out
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"pykbroker {__version__}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["strat"], "No such command 'strat'. Did you mean 'start'? Try 'pykbroker --help'."),
        (["generate", "compos"], "No such command 'compos'. Did you mean 'compose'? Try 'pykbroker generate --help'."),
        (["generate", "x"], "No such command 'x'. There are kubernetes, compose, systemd"),
        (["start", "--brokrs", "3"], "No such option '--brokrs'. Did you mean '--brokers'? Try 'pykbroker start"),
        (["start", "--port", "x"], "Invalid value for '--port': 'x' is not a valid integer. Try 'pykbroker start"),
        (["start", "--port"], "Option '--port' requires an argument."),
        (["--nonsense"], "No such option '--nonsense'. Try 'pykbroker --help'."),
    ],
)
def test_words_that_are_not_known_are_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith(f"pykbroker: {said}")


@pytest.mark.parametrize("verb", ["start", "format"])
def test_a_file_of_the_zookeeper_era_is_called_that(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=0\nlog.dirs=/tmp/kafka-logs\nzookeeper.connect=localhost:2181\n")
    assert main([verb, str(file)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pykbroker: This is a properties file of the ZooKeeper era (zookeeper.connect")
    assert "Write a new one with process.roles, node.id" in line


def test_a_file_that_cannot_be_read_is_named_without_a_number(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["start", "/nowhere/server.properties"]) == 1
    assert capsys.readouterr().err == "pykbroker: /nowhere/server.properties: No such file or directory\n"


def test_a_reader_that_ends_early_is_no_failure_of_ours() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "pykbroker", "--help"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 1
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


def test_each_summary_is_the_first_line_of_the_help() -> None:
    whole = program()
    ctx = click.Context(whole)
    for name, text in whole.summaries():
        command = whole.get_command(ctx, name)
        assert command is not None
        assert (command.name, summary(command)) == (name, text)
        for verb in command.commands.values() if isinstance(command, CommandGroup) else ():
            assert summary(verb).endswith(".")


@pytest.mark.parametrize(("ctx", "command"), LEAVES)
def test_each_command_has_an_example_whose_words_it_takes(ctx: click.Context, command: click.Command) -> None:
    path = ctx.command_path.split()
    for line in reference.leaf_example(command).splitlines():
        (part,) = (part for part in line.split(" | ") if part.startswith("pykbroker "))
        words = shlex.split(part.partition(" > ")[0].partition(" < ")[0])
        assert words[: len(path)] == path
        command.make_context(ctx.info_name, words[len(path) :], parent=ctx.parent)


def test_the_page_has_each_command() -> None:
    page = reference.page()
    for ctx, _ in reference.leaves(program()):
        assert f" {ctx.command_path}\n" in page
