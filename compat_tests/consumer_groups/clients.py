"""The clients of the consumer protocol (KIP-848), each as a program of its own that can be killed.

Tests of groups use `Party`: members of one group, from one or several families of clients.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from compat_tests.built import go_program, java_classes
from compat_tests.remote import Program, RemoteMember
from testkit.clients import PATIENCE_S, Record, wait_until
from testkit.oracle.kafka import java_command

FOLDER = Path(__file__).parents[1]
SESSION_TIMEOUT_MS = 4_000  # of members of the classic protocol


def _java() -> list[str]:
    classes = java_classes(FOLDER / "java" / "ClientProgram.java")
    return java_command("ClientProgram", extra_classpath=classes)


#: By family; each returns the command line of its program.
FAMILIES: dict[str, Callable[[], list[str]]] = {
    "java": _java,
    "confluent-kafka": lambda: [sys.executable, "-m", "compat_tests.python.confluent_program"],
    "franz-go": lambda: [str(go_program(FOLDER / "go"))],
}


class Programs:
    """One program of each family for the session, and further ones for members that are to die."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shared: dict[str, Program] = {}
        self._own: list[Program] = []

    def shared(self, family: str) -> Program:
        if family not in self._shared:
            self._shared[family] = self._start(family)
        return self._shared[family]

    def own(self, family: str) -> Program:
        self._own.append(self._start(family))
        return self._own[-1]

    def _start(self, family: str) -> Program:
        return Program(FAMILIES[family](), self._folder / f"{family}-{len(self._own)}.log")

    def close(self) -> None:
        for program in (*self._shared.values(), *self._own):
            program.close()


class Party:
    """The members of a test; those that have not left leave at its end."""

    def __init__(self, programs: Programs, bootstrap: str) -> None:
        self._programs = programs
        self._bootstrap = bootstrap
        self._members: list[RemoteMember] = []

    def join(
        self, family: str, group: str, topic: str = "", *, protocol: str = "consumer", **options: str
    ) -> RemoteMember:
        program = self._programs.shared(family)
        member = RemoteMember(program, self._bootstrap, topic, group, SESSION_TIMEOUT_MS, protocol=protocol, **options)
        self._members.append(member)
        return member

    def mortal(self, family: str, group: str, topic: str) -> tuple[RemoteMember, Program]:
        """Return a member whose process can be killed."""
        program = self._programs.own(family)
        return RemoteMember(program, self._bootstrap, topic, group, SESSION_TIMEOUT_MS, protocol="consumer"), program

    def close(self) -> None:
        for member in self._members:
            member.leave()


def shared_out(topic: str, partitions: int, *members: RemoteMember) -> bool:
    """Return True if these members have all partitions of the topic, each once, and no member has over one more than
    another."""
    assigned = [member.assignment() for member in members]
    everything = [place for own in assigned for place in own]
    sizes = [len(own) for own in assigned]
    return sorted(everything) == [(topic, number) for number in range(partitions)] and max(sizes) - min(sizes) <= 1


def await_shared(topic: str, partitions: int, *members: RemoteMember, timeout_s: float = PATIENCE_S) -> None:
    wait_until(
        lambda: shared_out(topic, partitions, *members),
        f"{len(members)} members share the {partitions} partitions of {topic}",
        timeout_s=timeout_s,
    )


def values(*members: RemoteMember) -> list[bytes]:
    return [value_of(record) for member in members for record in member.records()]


def value_of(record: Record) -> bytes:
    return record.value or b""
