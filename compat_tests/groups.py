"""The tests of a client's consumer groups: members join, leave and die.

A member that dies runs in a process of its own (`Spawn`), which is killed with SIGKILL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from compat_tests.node import Node
from compat_tests.remote import Program, RemoteClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Client, Member, Record, wait_until

#: Returns a client in a process of its own, and a function that ends that process with SIGKILL.
Spawn = Callable[[], tuple[Client, Callable[[], None]]]
SESSION_TIMEOUT_MS = 1500


def spawner(name: str, command: Sequence[str], folder: Path) -> Iterator[Spawn]:
    programs: list[Program] = []

    def spawn() -> tuple[Client, Callable[[], None]]:
        program = Program(command, folder / f"{name}-{len(programs)}.log")
        programs.append(program)
        return RemoteClient(name, program, session_timeout_ms=SESSION_TIMEOUT_MS), program.kill

    yield spawn
    for program in programs:
        program.kill()


def values(*of: Member) -> list[bytes]:
    return [record.value or b"" for member in of for record in member.records()]


class GroupSuite:
    """Subclasses define `client`, and `spawn` for members that die."""

    @pytest.fixture
    def client(self) -> Client:
        raise NotImplementedError

    @pytest.fixture
    def spawn(self) -> Iterator[Spawn]:
        raise NotImplementedError

    @pytest.fixture
    def members(self) -> Iterator[list[Member]]:
        joined: list[Member] = []
        yield joined
        for member in joined:
            member.leave()

    def test_members_join_and_leave(self, client: Client, broker: Node, topics: Topics, members: list[Member]) -> None:
        topic = topics.create(partitions=4)
        group = f"group-{topic}"

        def write(start: int, count: int) -> set[bytes]:
            batch = [Record(None, b"%d" % i, (), NOW_MS + i, i % 4) for i in range(start, start + count)]
            client.produce(broker.bootstrap, topic, batch)
            return {record.value or b"" for record in batch}

        def join() -> Member:
            member = client.member(broker.bootstrap, topic, group)
            members.append(member)
            return member

        expected = write(0, 40)
        first = join()
        wait_until(lambda: first.partitions() == {0, 1, 2, 3}, "a lone member has every partition")
        wait_until(lambda: set(values(first)) == expected, "a lone member reads every record")

        second = join()
        wait_until(
            lambda: (
                len(first.partitions()) == len(second.partitions()) == 2
                and first.partitions() | second.partitions() == {0, 1, 2, 3}
            ),
            "two members share the partitions",
        )
        more = write(40, 40)
        expected |= more
        wait_until(lambda: set(values(first, second)) == expected, "two members read every record")
        halves = [
            {record.partition for record in member.records() if record.value in more} for member in (first, second)
        ]
        assert sorted(map(len, halves)) == [2, 2]
        assert halves[0].isdisjoint(halves[1])

        first.leave()
        wait_until(lambda: second.partitions() == {0, 1, 2, 3}, "who stays gets every partition")
        expected |= write(80, 40)
        wait_until(lambda: set(values(first, second)) == expected, "who stays reads every record")
        second.leave()

        third = join()
        last = write(120, 8)
        wait_until(lambda: last <= set(values(third)), "a later member reads what is new")
        assert set(values(third)) == last, "a later member starts where the group had committed"
        assert sorted(values(first, second, third)) == sorted(expected | last), "each record was read once"

    def test_members_die(self, spawn: Spawn, client: Client, quick_groups: Node) -> None:
        """A killed member loses its partitions to the others after its session timeout, and no record is skipped."""
        topic = Topics(quick_groups.bootstrap).create(partitions=6)
        group = f"group-{topic}"
        written: set[bytes] = set()
        alive: list[tuple[Member, Callable[[], None]]] = []
        read_by_the_dead: set[bytes] = set()

        def write() -> None:
            start = len(written)
            batch = [Record(None, b"%d" % i, (), NOW_MS, i % 6) for i in range(start, start + 60)]
            client.produce(quick_groups.bootstrap, topic, batch)
            written.update(record.value or b"" for record in batch)

        def join() -> None:
            own, kill = spawn()
            alive.append((own.member(quick_groups.bootstrap, topic, group), kill))

        def shared() -> bool:
            owned = [member.partitions() for member, _ in alive]
            fair = {6 // len(alive)} == {len(parts) for parts in owned}
            return fair and set().union(*owned) == set(range(6))

        def settle() -> None:
            """All members have an equal share, no partition has two owners, and the members read everything."""
            wait_until(shared, f"{len(alive)} members share six partitions")
            write()
            wait_until(
                lambda: written <= read_by_the_dead | set(values(*(member for member, _ in alive))),
                "everything is read",
            )

        def die() -> None:
            member, kill = alive.pop(0)
            read_by_the_dead.update(values(member))
            kill()

        join()
        join()
        join()
        settle()
        die()
        settle()
        join()
        settle()
        leaver, _ = alive.pop(0)
        leaver.leave()
        read_by_the_dead.update(values(leaver))
        settle()
        (last, _) = alive[0]
        last.leave()

        at: dict[tuple[int, int | None], bytes | None] = {}
        for member in (leaver, last):
            for record in member.records():
                assert at.setdefault((record.partition, record.offset), record.value) == record.value
