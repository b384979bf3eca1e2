"""`pykbroker groups`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ShareConsumer

from compat_tests.command_line.asked import CommandLine
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.topics import Topics
from testkit.clients import NOW_MS, Record, wait_until

COUNT = 5


@pytest.fixture
def topic(line: CommandLine) -> str:
    """A topic of two partitions with five records each, a second apart."""
    name = Topics(line.bootstrap).create(partitions=2)
    records = [Record(None, b"%d" % i, (), NOW_MS + 1000 * (i // 2), i % 2) for i in range(2 * COUNT)]
    ConfluentClient().produce(line.bootstrap, name, records)
    return name


@contextmanager
def member(line: CommandLine, topic: str, group: str, protocol: str = "classic") -> Iterator[None]:
    """A member that has read and committed everything."""
    settings: dict[str, Any] = {
        "bootstrap.servers": line.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "client.id": "the-client",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        read = 0

        def all_read() -> bool:
            nonlocal read
            read += sum(message.error() is None for message in consumer.consume(100, timeout=0.1))
            return read >= 2 * COUNT

        wait_until(all_read, "the member has read everything")
        consumer.commit(asynchronous=False)
        yield
    finally:
        consumer.close()


@pytest.fixture
def empty(line: CommandLine, topic: str, name: str) -> str:
    """A group without members that has committed the ends."""
    with member(line, topic, name):
        pass
    wait_until(lambda: described(line, name)["state"] == "Empty", "the member has left")
    return name


def described(line: CommandLine, group: str) -> dict[str, Any]:
    (found,) = line.json("groups", "describe", group)
    assert isinstance(found, dict)
    return found


def committed(line: CommandLine, group: str) -> dict[int, int]:
    return {row["partition"]: row["committed"] for row in described(line, group)["partitions"]}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member(line: CommandLine, topic: str, name: str, protocol: str) -> None:
    with member(line, topic, name, protocol):
        wait_until(lambda: described(line, name)["state"] == "Stable", "the group is stable")
        told = described(line, name)
        assert list(told) == [
            "group", "type", "state", "assignor", "coordinator", "total_lag", "partitions", "members",
            "dead_letter_topic",
        ]  # fmt: skip
        assert (told["group"], told["type"], told["coordinator"], told["total_lag"]) == (name, protocol, 1, 0)
        (one,) = told["members"]
        assert (one["client_id"], one["instance_id"], one["assignment"]) == (
            "the-client",
            None,
            [f"{topic}-0", f"{topic}-1"],
        )
        assert told["partitions"] == [
            {
                "topic": topic,
                "partition": number,
                "committed": COUNT,
                "end": COUNT,
                "lag": 0,
                "member": one["member"],
                "client_id": "the-client",
                "host": one["host"],
            }
            for number in (0, 1)
        ]
        assert {"group": name, "type": protocol, "state": "Stable", "lag": 0} in line.json("groups", "list")
        other = "consumer" if protocol == "classic" else "classic"
        listed = [row["group"] for row in line.json("groups", "list", "--type", protocol, "--state", "stable")]
        assert name in listed
        assert name not in [row["group"] for row in line.json("groups", "list", "--type", other)]
        heading, titles, *rows = line("groups", "describe", name).out.splitlines()
        assert heading == f"{name} ({protocol}), Stable, 1 member, coordinator 1, lag 0"
        assert titles.split() == ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER", "CLIENT", "HOST"]
        assert [row.split()[:5] for row in rows] == [[topic, str(one), "5", "5", "0"] for one in (0, 1)]
        heading, titles, row = line("groups", "describe", name, "--members").out.splitlines()
        assert titles.split() == ["MEMBER", "CLIENT", "HOST", "INSTANCE", "ASSIGNMENT"]
        assert row.split()[-1] == f"{topic}-0,{topic}-1"
        # Commands that need a group without members.
        reset = line("groups", "reset", name, "--all-topics", "--to-earliest", "--execute")
        assert reset.failure == f"Group {name} has members (Stable): stop them first, then reset it"
        assert line("groups", "delete", name).failure == (
            f"Group {name} has members: stop them first (NON_EMPTY_GROUP)"
        )
        assert committed(line, name) == {0: COUNT, 1: COUNT}


@contextmanager
def share_member(line: CommandLine, topic: str, group: str) -> Iterator[None]:
    """A member of a share group that has acknowledged everything."""
    assert line("configs", "alter", "group", group, "--set", "share.auto.offset.reset=earliest").status == 0
    consumer = ShareConsumer(
        {"bootstrap.servers": line.bootstrap, "group.id": group, "client.id": "the-client", "log_level": 0}
    )
    try:
        consumer.subscribe([topic])
        read = 0

        def all_read() -> bool:
            nonlocal read
            read += sum(message.error() is None for message in consumer.poll(timeout=0.1) or ())
            return read >= 2 * COUNT

        wait_until(all_read, "the member has read everything")
        consumer.commit_sync(30.0)
        yield
    finally:
        consumer.close()


def test_a_share_group(line: CommandLine, topic: str, name: str) -> None:
    with share_member(line, topic, name):
        wait_until(lambda: described(line, name)["total_lag"] == 0, "the acknowledgements count")
        told = described(line, name)
        assert (told["group"], told["type"], told["state"], told["assignor"]) == (name, "share", "Stable", "simple")
        (one,) = told["members"]
        assert (one["client_id"], one["assignment"]) == ("the-client", [f"{topic}-0", f"{topic}-1"])
        assert [(row["partition"], row["end"], row["lag"], row["member"]) for row in told["partitions"]] == [
            (number, COUNT, 0, None) for number in (0, 1)
        ]
        assert {"group": name, "type": "share", "state": "Stable", "lag": 0} in line.json("groups", "list")
        assert name in [row["group"] for row in line.json("groups", "list", "--type", "share")]
        assert name not in [row["group"] for row in line.json("groups", "list", "--type", "consumer")]
        assert line("groups", "reset", name, "--all-topics", "--to-earliest").failure == (
            f"Group {name} has members (Stable): stop them first, then reset it"
        )
        assert line("groups", "remove-members", name, "--all").failure == (
            f"Group {name} is a share group: its members leave, or their sessions end"
        )
        assert line("groups", "delete", name).failure == (
            f"Group {name} has members: stop them first (NON_EMPTY_GROUP)"
        )
    wait_until(lambda: described(line, name)["state"] == "Empty", "the member has left")
    assert line("groups", "delete", name).status == 0
    assert name not in [row["group"] for row in line.json("groups", "list")]


def starts(line: CommandLine, group: str) -> dict[int, int]:
    return {row["partition"]: row["committed"] for row in described(line, group)["partitions"]}


def test_a_share_group_is_reset(line: CommandLine, topic: str, name: str, tmp_path: Path) -> None:
    made = line.json("groups", "reset", name, "--share", "--topic", topic, "--to-latest", "--execute")
    assert [(row["committed"], row["new_offset"]) for row in made["partitions"]] == [(None, COUNT), (None, COUNT)]
    assert described(line, name)["type"] == "share"
    # From here on the group is known, and needs no option.
    planned = line.json("groups", "reset", name, "--topic", f"{topic}:1", "--to-earliest")
    assert [(row["partition"], row["committed"], row["new_offset"]) for row in planned["partitions"]] == [(1, COUNT, 0)]
    assert starts(line, name) == {0: COUNT, 1: COUNT}
    for how, expected in (
        (("--topic", f"{topic}:1", "--to-earliest"), {0: COUNT, 1: 0}),
        (("--topic", f"{topic}:0", "--shift-by", "-2"), {0: COUNT - 2, 1: 0}),
        (("--all-topics", "--to-datetime", f"@{NOW_MS + 1500}"), {0: 2, 1: 2}),
        (("--all-topics", "--to-offset", "4"), {0: 4, 1: 4}),
    ):
        assert line("groups", "reset", name, *how, "--execute").status == 0
        assert starts(line, name) == expected
    told = described(line, name)
    assert [(row["end"], row["lag"]) for row in told["partitions"]] == [(COUNT, 1), (COUNT, 1)]
    exported = line("groups", "reset", name, "--all-topics", "--to-current", "--export")
    assert exported.out == f"{topic},0,4\n{topic},1,4\n"
    (tmp_path / "starts.csv").write_text(exported.out.replace(",4", ",1"))
    assert line("groups", "reset", name, "--from-file", str(tmp_path / "starts.csv"), "--execute").status == 0
    assert starts(line, name) == {0: 1, 1: 1}
    assert line("groups", "delete", name).status == 0


def test_the_dead_letter_topic_of_a_share_group(line: CommandLine, topic: str, name: str) -> None:
    line("groups", "reset", name, "--share", "--topic", topic, "--to-latest", "--execute")
    assert described(line, name)["dead_letter_topic"] is None
    key = "errors.deadletterqueue.topic.name"
    # Apache Kafka 4.3.1 has no such key.
    if line("configs", "alter", "group", name, "--set", f"{key}=dlq.{topic}").status == 0:
        assert described(line, name)["dead_letter_topic"] == f"dlq.{topic}"
        assert f", dead letters go to dlq.{topic}" in line("groups", "describe", name).out
    assert line("groups", "delete", name).status == 0


def test_lag_is_what_comes_after_the_committed_offset(line: CommandLine, topic: str, empty: str) -> None:
    ConfluentClient().produce(line.bootstrap, topic, [Record(None, b"more", (), NOW_MS, 1)] * 3)
    told = described(line, empty)
    assert [(row["committed"], row["end"], row["lag"]) for row in told["partitions"]] == [(5, 5, 0), (5, 8, 3)]
    assert told["total_lag"] == 3
    assert told["partitions"][0]["member"] is None


def test_the_list_has_the_lag_of_each_group(line: CommandLine, topic: str, empty: str, name: str) -> None:
    ConfluentClient().produce(line.bootstrap, topic, [Record(None, b"more", (), NOW_MS, 1)] * 3)
    assert (
        line("groups", "reset", name + "-other", "--topic", f"{topic}:0", "--to-offset", "1", "--execute").status == 0
    )
    listed = {row["group"]: row for row in line.json("groups", "list")}
    assert listed[empty] == {"group": empty, "type": "classic", "state": "Empty", "lag": 3}
    assert listed[name + "-other"]["lag"] == COUNT - 1
    titles, *rows = line("groups", "list").out.splitlines()
    assert titles.split() == ["GROUP", "TYPE", "STATE", "LAG"]
    assert [empty, "classic", "Empty", "3"] in [row.split() for row in rows]


def test_offsets_go_to_a_file_and_come_back(line: CommandLine, topic: str, empty: str, tmp_path: Path) -> None:
    exported = line("groups", "reset", empty, "--all-topics", "--to-current", "--export")
    assert (exported.status, exported.out) == (0, f"{topic},0,{COUNT}\n{topic},1,{COUNT}\n")
    file = tmp_path / "offsets.csv"
    file.write_text(exported.out)
    assert line("groups", "reset", empty, "--all-topics", "--to-earliest", "--execute").status == 0
    assert committed(line, empty) == {0: 0, 1: 0}
    back = line.json("groups", "reset", empty, "--from-file", str(file), "--execute")
    assert [row["new_offset"] for row in back["partitions"]] == [COUNT, COUNT]
    assert committed(line, empty) == {0: COUNT, 1: COUNT}
    # Without a committed offset --to-current is the end.
    now = line.json("groups", "reset", empty + "-new", "--topic", topic, "--to-current")
    assert [(row["committed"], row["new_offset"]) for row in now["partitions"]] == [(None, COUNT), (None, COUNT)]
    file.write_text(f"{topic}x,0,1\n")
    assert line("groups", "reset", empty, "--from-file", str(file)).failure.startswith(f"There is no topic '{topic}x'")
    file.write_text("x\n")
    assert line("groups", "reset", empty, "--from-file", str(file)).failure == "Invalid row in the file: x"
    assert line("groups", "reset", empty, "--from-file", "/nowhere").failure == "/nowhere: No such file or directory"


def test_a_member_that_is_gone_is_removed(line: CommandLine, topic: str, name: str) -> None:
    """A static member that closes does not leave its group."""
    settings = {
        "bootstrap.servers": line.bootstrap,
        "group.id": name,
        "group.instance.id": "the-instance",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()), "the member has partitions")
    consumer.close()
    (member,) = described(line, name)["members"]
    near = line("groups", "remove-members", name, "--instance", "the-instanc").failure
    assert near == f"There is no member of group {name} 'the-instanc': did you mean 'the-instance'?"
    assert line.json("groups", "remove-members", name, "--instance", "the-instance") == [
        {"member": member["member"], "instance_id": "the-instance", "outcome": "removed"}
    ]
    wait_until(lambda: described(line, name)["state"] == "Empty", "the group is empty")
    assert line("groups", "remove-members", name, "--all").out == f"Group {name} has no members.\n"
    said = line("groups", "remove-members", name).failure
    assert said.startswith("Say which members: --member, --instance or --all.")


def test_a_reset_is_shown_before_it_is_done(line: CommandLine, topic: str, empty: str) -> None:
    words = ("groups", "reset", empty, "--all-topics", "--to-earliest")
    rows = [{"topic": topic, "partition": one, "committed": COUNT, "new_offset": 0} for one in (0, 1)]
    for dry in ((), ("--dry-run",)):
        assert line.json(*words, *dry) == {"group": empty, "executed": False, "partitions": rows}
        assert committed(line, empty) == {0: COUNT, 1: COUNT}
    said = line(*words).out.splitlines()
    assert said[0] == f"Group {empty} would be reset like this; --execute does it:"
    assert said[1].split() == ["TOPIC", "PARTITION", "COMMITTED", "NEW", "OFFSET"]
    assert said[2].split() == [topic, "0", "5", "0"]
    assert line.json(*words, "--execute") == {"group": empty, "executed": True, "partitions": rows}
    assert committed(line, empty) == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (("--to-latest",), (5, 5)),
        (("--to-offset", "2"), (2, 2)),
        (("--shift-by", "-2"), (3, 3)),
        (("--to-datetime", "AT"), (3, 3)),
        (("--to-datetime", "ATZ"), (3, 3)),
        (("--to-datetime", "2001-01-31"), (0, 0)),
        (("--to-datetime", "-3000d"), (0, 0)),
        (("--by-duration", "P3000D"), (0, 0)),
        (("--by-duration", "3000d"), (0, 0)),
    ],
)
def test_where_a_reset_leads(
    line: CommandLine, topic: str, empty: str, target: tuple[str, ...], offsets: tuple[int, int]
) -> None:
    from datetime import UTC, datetime

    at = datetime.fromtimestamp((NOW_MS + 3000) / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    words = [word.replace("AT", at) for word in target]
    done = line.json("groups", "reset", empty, "--topic", topic, *words, "--execute")
    assert tuple(row["new_offset"] for row in done["partitions"]) == offsets
    assert committed(line, empty) == dict(enumerate(offsets))


def test_a_reset_stays_within_the_partition(line: CommandLine, topic: str, empty: str) -> None:
    done = line("groups", "reset", empty, "--topic", f"{topic}:1", "--shift-by", "9", "--execute", "-o", "json")
    assert done.err == f"pykbroker: {topic}-1 has no offset 14: 5 is taken\n"
    late = line(
        "groups", "reset", empty, "--topic", f"{topic}:0", "--to-datetime", "2999-01-01T00:00:00.000", "--execute"
    )
    assert late.err == f"pykbroker: {topic}-0 has no record from then on: its end is taken\n"
    assert committed(line, empty) == {0: 5, 1: 5}


def test_a_group_is_made_by_its_first_offset_and_deleted(line: CommandLine, topic: str, name: str) -> None:
    assert line("groups", "reset", name, "--topic", topic, "--to-offset", "1", "--execute").status == 0
    assert committed(line, name) == {0: 1, 1: 1}
    both = line("groups", "delete", name, name + "x", "-o", "json")
    assert (both.status, json.loads(both.out)) == (1, [{"group": name, "outcome": "deleted"}])
    assert both.failure.startswith(f"There is no group '{name}x'")
    assert name not in [row["group"] for row in line.json("groups", "list")]


def test_what_is_refused_is_one_line(line: CommandLine, topic: str, empty: str) -> None:
    near = f"There is no group '{empty}x': did you mean '{empty}'?"
    assert line("groups", "describe", empty + "x").failure == near
    assert line("groups", "delete", empty + "x").failure == near
    words = ("groups", "reset", empty)
    assert line(*words, "--topic", topic + "x", "--to-latest").failure == (
        f"There is no topic '{topic}x': did you mean '{topic}'?"
    )
    assert line(*words, "--topic", topic + ":7", "--to-latest").failure == f'The partitions "{topic}-7" do not exist'
    for option, said in (
        ("--to-datetime", "'yesterday' is no time: "),
        ("--by-duration", "'yesterday' is no duration: "),
    ):
        refused = line(*words, "--all-topics", option, "yesterday").failure
        assert refused.startswith(f"Invalid value for '{option}': {said}")
    assert committed(line, empty) == {0: COUNT, 1: COUNT}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("reset", "g", "--all-topics"), "Say where to, with one of --to-earliest, --to-latest, --to-current,"),
        (("reset", "g", "--all-topics", "--to-latest", "--to-earliest"), "Say where to, with one of --to-earliest,"),
        (("reset", "g", "--to-latest"), "Say which partitions: --topic or --all-topics."),
        (("reset", "g", "--all-topics", "--topic", "t", "--to-latest"), "Say which partitions: --topic or --all-t"),
        (("reset", "g", "--all-topics", "--to-latest", "--dry-run", "--execute"), "--dry-run does not go with --exec"),
        (("reset", "g", "--all-topics", "--to-offset", "-1"), "Invalid value for '--to-offset': -1 is not in the"),
        (("reset", "g", "--from-file", "f", "--topic", "t"), "--from-file says which partitions"),
        (("reset", "g", "--all-topics", "--to-current", "--export", "--execute"), "--export goes neither with"),
        (("list", "--state", "Stabel"), "Invalid value for '--state': 'Stabel' is not one of"),
        (("delete",), "Missing argument 'GROUP...'."),
        (("descirbe", "g"), "No such command 'descirbe'. Did you mean 'describe'?"),
    ],
)
def test_wrong_words_are_one_line(line: CommandLine, words: tuple[str, ...], said: str) -> None:
    assert line("groups", *words).failure.startswith(said)
