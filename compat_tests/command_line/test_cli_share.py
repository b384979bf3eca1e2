"""`pykbroker consume --share`: a member of a share group."""

from __future__ import annotations

import json
import signal
from select import select
from typing import Any

import pytest

from compat_tests.command_line.asked import CommandLine
from compat_tests.command_line.test_cli_produce_consume import fill, started, values
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, wait_until

COUNT = 10


@pytest.fixture
def topic(line: CommandLine) -> str:
    """A topic of two partitions with ten records in each, whose values are 0 to 9."""
    name = Topics(line.bootstrap).create(partitions=2)
    for partition in (0, 1):
        fill(line, name, [NOW_MS + number for number in range(COUNT)], partition)
    return name


def lag(line: CommandLine, group: str) -> int:
    (told,) = line.json("groups", "describe", group)
    found: int = told["total_lag"]
    return found


def test_members_take_records_from_a_queue(line: CommandLine, topic: str, name: str) -> None:
    form = ["--share", name, "-f", r"%p/%o/%s/%d\n"]
    first = values(line, topic, *form, "--from", "beginning", "-c", "7")
    assert len(first) == 7
    (told,) = line.json("groups", "describe", name)
    assert (told["type"], told["state"]) == ("share", "Empty")
    titles = line("groups", "describe", name).out.splitlines()[1]
    assert titles.split() == ["TOPIC", "PARTITION", "START", "END", "LAG", "MEMBER", "CLIENT", "HOST"]
    # Records that were given back come again, and their count rises. Each partition has three, so one fetch gets them.
    back = values(line, topic, *form, "-c", "3", "--release")
    assert {each.rpartition("/")[2] for each in (*first, *back)} == {"1"}
    rest = values(line, topic, *form)
    again = {each.rpartition("/")[0] for each in back}
    assert {each.rpartition("/")[0] for each in rest if each.endswith("/2")} == again
    every = [each.rpartition("/")[0] for each in (*first, *rest)]
    assert sorted(every) == sorted(f"{partition}/{at}/{at}" for partition in (0, 1) for at in range(COUNT))
    wait_until(lambda: lag(line, name) == 0, "the acknowledgements count")
    assert values(line, topic, *form) == []


def test_rejected_records_do_not_come_again(line: CommandLine, topic: str, name: str) -> None:
    said = line("consume", topic, "--share", name, "--from", "beginning", "-c", "4", "--reject", "-J")
    rejected = [json.loads(each) for each in said.out.splitlines()]
    assert {each["delivery_count"] for each in rejected} == {1}
    rest = [json.loads(each) for each in line("consume", topic, "--share", name, "-J").out.splitlines()]
    places = [(each["partition"], each["offset"]) for each in (*rejected, *rest)]
    assert sorted(places) == [(partition, at) for partition in (0, 1) for at in range(COUNT)]


def test_a_new_group_starts_at_the_end_unless_told(line: CommandLine, topic: str, name: str) -> None:
    with started(line, "consume", topic, "--share", name, "--follow", "-f", r"%s\n") as process:

        def is_there() -> bool:
            found: Any = line("groups", "describe", name, "--members", "-o", "json")
            return found.status == 0 and bool(json.loads(found.out)[0]["members"][0]["assignment"])

        wait_until(is_there, "the member has partitions")
        assert process.stdout is not None
        # The group has a start when its leader has loaded, and a record before that is not for it.
        fill(line, topic, [NOW_MS])
        while not select([process.stdout], [], [], 0.5)[0]:
            fill(line, topic, [NOW_MS])
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (first, err) == (b"0\n", b"")
    assert process.returncode == 130
    assert set(out.split()) <= {b"0"}


def test_a_signal_ends_a_member_that_follows(line: CommandLine, topic: str, name: str) -> None:
    words = ["consume", topic, "--share", name, "--from", "beginning", "--follow", "-f", r"%s\n"]
    with started(line, *words) as process:
        assert process.stdout is not None
        found = [process.stdout.readline() for _ in range(2 * COUNT)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert sorted(found) == sorted(2 * [b"%d\n" % number for number in range(COUNT)])
    # The printed records are acknowledged, and the member has left.
    (told,) = line.json("groups", "describe", name)
    assert (told["state"], told["total_lag"]) == ("Empty", 0)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--share", "g", "--group", "h"], "--group does not go with --share"),
        (["--share", "g", "-p", "0"], "--partition does not go with --share"),
        (["--share", "g", "--to", "3"], "--to does not go with --share"),
        (["--share", "g", "--grep", "x"], "--grep does not go with --share"),
        (["--share", "g", "--isolation", "read_committed"], "--isolation does not go with --share"),
        (["--share", "g", "--from", "3"], "--from is beginning or end with --share"),
        (["--share", "g", "--release", "--reject"], "--release does not go with --reject"),
        (["--share", "g", "-X", "group.id=h"], "-X group.id does not go with --share"),
        (["--release"], "--release needs --share"),
    ],
)
def test_what_does_not_go_together(line: CommandLine, words: list[str], reason: str) -> None:
    said = line("consume", "t", *words)
    assert said.status == 2
    assert said.failure.startswith(reason)
