"""Completion of names by the shell, from the cluster."""

from __future__ import annotations

from click.shell_completion import ShellComplete

from compat_tests.command_line.asked import CommandLine
from compat_tests.topics import Topics
from pykbroker.entry.own_commands import COMPLETE_VARIABLE
from pykbroker.tools.commands.main import program
from testkit.clients import wait_until


def completed(words: list[str], begun: str) -> list[str]:
    shell = ShellComplete(program(), {}, "pykbroker", COMPLETE_VARIABLE)
    return [item.value for item in shell.get_completions(words, begun)]


def wait_for(words: list[str], begun: str, names: list[str]) -> None:
    """Repeat the completion, because it gives up after a second, which a busy machine may need."""
    wait_until(lambda: completed(words, begun) == names, f"{' '.join(words)} {begun} is completed to {names}")


def test_topics_and_groups(line: CommandLine, name: str) -> None:
    topics = Topics(line.bootstrap)
    for end in ("-a", "-b"):
        topics.create(name=name + end)
    at = ["-b", line.bootstrap]
    wait_for(["topics", "describe", *at], name, [name + "-a", name + "-b"])
    wait_for(["topics", "describe", *at, name + "-a"], name + "-b", [name + "-b"])
    assert completed(["topics", "describe", *at], name + "-c") == []
    assert line("groups", "reset", name, "--topic", name + "-a", "--to-latest", "--execute").status == 0
    wait_for(["groups", "describe", *at], name[:-1], [name])
    wait_for(["groups", "reset", *at, name, "--topic"], name, [name + "-a", name + "-b"])
