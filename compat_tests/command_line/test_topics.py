"""`pykbroker topics`."""

from __future__ import annotations

import pytest

from compat_tests.command_line.asked import CommandLine
from testkit.clients import wait_until

KEYS = ["topic", "partitions", "replication_factor", "under_replicated", "leaderless", "internal", "topic_id"]


def wait_for(line: CommandLine, name: str, partitions: int) -> None:
    """Wait until every partition is led, or with 0 until the topic is deleted."""

    def led() -> bool:
        rows = [row for row in line.json("topics", "list") if row["topic"] == name]
        found = sum(row["partitions"] - row["leaderless"] for row in rows)
        return bool(rows) == bool(partitions) and found == partitions

    wait_until(led, f"{name} has {partitions} partitions")


def test_a_topic_from_its_creation_to_its_end(line: CommandLine, name: str) -> None:
    created = line.json("topics", "create", name, "-p", "2", "-c", "retention.ms=60000", "-c", "cleanup.policy=compact")
    assert created == [{"topic": name, "outcome": "created"}]
    wait_for(line, name, 2)
    (row,) = [row for row in line.json("topics", "list") if row["topic"] == name]
    assert list(row) == KEYS
    assert {key: row[key] for key in KEYS[1:-1]} == {
        "partitions": 2,
        "replication_factor": 1,
        "under_replicated": 0,
        "leaderless": 0,
        "internal": False,
    }
    (told,) = line.json("topics", "describe", name)
    assert (told["topic"], told["topic_id"], told["replication_factor"]) == (name, row["topic_id"], 1)
    assert told["configs"] == {"retention.ms": "60000", "cleanup.policy": "compact"}
    assert [one["partition"] for one in told["partitions"]] == [0, 1]
    assert told["partitions"][1] == {
        "partition": 1, "leader": 1, "replicas": [1], "isr": [1], "elr": [], "offline": []
    }  # fmt: skip
    altered = line("topics", "alter", name, "-p", "3", "-c", "retention.ms=90000", "--delete-config", "cleanup.policy")
    assert (altered.status, altered.err) == (0, "")
    assert altered.out.startswith(f"Altered topic {name}: retention.ms=90000 (before: ")
    assert altered.out.endswith(", partitions=3 (before: 2).\n")
    wait_for(line, name, 3)
    (told,) = line.json("topics", "describe", name)
    assert (told["configs"], len(told["partitions"])) == ({"retention.ms": "90000"}, 3)
    assert line("topics", "delete", name).out == f"Deleted topic {name}.\n"
    wait_for(line, name, 0)
    assert line.json("topics", "delete", name, "--if-exists") == [{"topic": name, "outcome": "unchanged"}]


def test_configurations_with_units(line: CommandLine, name: str) -> None:
    assert line("topics", "create", name, "-c", "retention.ms=7d", "-c", "segment.bytes=1GiB").status == 0
    wait_for(line, name, 1)
    (told,) = line.json("topics", "describe", name)
    assert told["configs"] == {"retention.ms": "604800000", "segment.bytes": "1073741824"}
    assert line("topics", "alter", name, "-c", "retention.ms=1h30m").status == 0
    assert line.json("configs", "alter", "topic", name, "--set", "max.message.bytes=512KiB")["set"] == {
        "max.message.bytes": "524288"
    }
    (told,) = line.json("topics", "describe", name)
    assert (told["configs"]["retention.ms"], told["configs"]["max.message.bytes"]) == ("5400000", "524288")
    # A unit of another kind is not taken for this key, and the broker refuses it.
    assert "Not a number of type LONG" in line("topics", "alter", name, "-c", "retention.ms=1GiB").failure


def test_short_names_and_other_numbers_of_a_noun(line: CommandLine, name: str) -> None:
    assert line("topic", "create", name).status == 0
    wait_for(line, name, 1)
    assert name in [row["topic"] for row in line.json("topic", "ls")]
    assert line.json("config", "describe", "topics", name) == line.json("configs", "describe", "topic", name)
    assert line("topics", "rm", name).out == f"Deleted topic {name}.\n"
    wait_for(line, name, 0)
    for words in (("topic", "ls"), ("groups", "rm"), ("clusters", "id")):
        assert line(*words, "-h").out.startswith(f"Usage: pykbroker {' '.join(words)} [OPTIONS]")


def test_tables(line: CommandLine, name: str) -> None:
    assert line("topics", "create", name, "-p", "2").out == f"Created topic {name}.\n"
    wait_for(line, name, 2)
    titles, *rows = line("topics", "list").out.splitlines()
    assert titles.split("  ")[0] == "TOPIC"
    assert [row.split() for row in rows if row.startswith(f"{name} ")] == [[name, "2", "1", "0", "0", "no"]]
    heading, titles, *rows = line("topics", "describe", name).out.splitlines()
    assert heading.startswith(f"{name} (")
    assert heading.endswith("), replication factor 1, min.insync.replicas 1, configurations: none of its own")
    assert titles.split() == ["PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "OFFLINE"]
    assert [row.split() for row in rows] == [["0", "1", "1", "1", "-", "-"], ["1", "1", "1", "1", "-", "-"]]
    # The filters: no replica is missing.
    assert line.json("topics", "list", "--under-replicated") == []
    assert line.json("topics", "describe", name, "--under-replicated") == []
    assert line.json("topics", "describe", name, "--leaderless") == []
    assert name in [one["topic"] for one in line.json("topics", "describe")]


def test_patterns_name_topics_as_a_whole(line: CommandLine, name: str) -> None:
    for end in ("-a", "-b", "-ab"):
        assert line("topics", "create", name + end).status == 0
        wait_for(line, name + end, 1)
    for words in (("list",), ("describe",)):
        found = [row["topic"] for row in line.json("topics", *words, f"{name}-[ab]")]
        assert found == [f"{name}-a", f"{name}-b"]
    assert [row["topic"] for row in line.json("topics", "list", f"{name}-ab", f"{name}-.*b")] == [
        f"{name}-ab", f"{name}-b"
    ]  # fmt: skip
    none = line("topics", "list", f"{name}-[x]").failure
    assert none == f"No topic matches '{name}-[x]', a regular expression of RE2 for whole names: `.*` is any text"
    wrong = line("topics", "list", "*").failure
    assert wrong.startswith("'*' is no regular expression of RE2: no argument for repetition operator: *.")
    # A pattern deletes nothing before somebody has seen what it matches.
    two = f"2 topics: {name}-a, {name}-b"
    assert line("topics", "delete", f"{name}-[ab]").failure == f"Nothing is deleted. --yes deletes {two}"
    assert len(line.json("topics", "list", f"{name}-.*")) == 3
    assert line("topics", "delete", f"{name}-[ab]", "--yes").out == (
        f"Deleted topic {name}-a.\nDeleted topic {name}-b.\n"
    )
    assert line("topics", "delete", f"{name}-[xy]", "--if-exists").status == 0
    assert line("topics", "delete", f"{name}-ab").status == 0


def test_offsets_and_sizes(line: CommandLine, name: str) -> None:
    assert line("topics", "create", name, "-p", "2").status == 0
    wait_for(line, name, 2)
    records = [
        '{"value": "a", "ts": 1000000000000, "partition": 0}',
        '{"value": "b", "ts": 1000000060000, "partition": 0}',
    ]
    assert line("produce", name, "-J", stdin="\n".join(records)).status == 0
    assert line.json("topics", "offsets", name) == [
        {"topic": name, "partition": 0, "beginning": 0, "end": 2, "offsets": 2},
        {"topic": name, "partition": 1, "beginning": 0, "end": 0, "offsets": 0},
    ]
    assert line.json("topics", "offsets", name, "--at", "@1000000000001") == [
        {"topic": name, "partition": 0, "offset": 1},
        {"topic": name, "partition": 1, "offset": None},
    ]
    titles, row, _ = line("topics", "offsets", name).out.splitlines()
    assert (titles.split(), row.split()) == (
        ["TOPIC", "PARTITION", "BEGINNING", "END", "OFFSETS"],
        [name, "0", "0", "2", "2"],
    )
    (size,) = line.json("topics", "sizes", name)
    assert (size["topic"], size["partitions"]) == (name, 2)
    assert size["bytes"] == size["all_replicas"] > 50
    replicas = line.json("topics", "sizes", name, "--replicas")
    assert [(row["partition"], row["broker"], row["future"]) for row in replicas] == [(0, 1, False), (1, 1, False)]
    assert sum(row["bytes"] for row in replicas) == size["bytes"]
    assert all(row["directory"].startswith("/") for row in replicas)


def test_what_is_refused_is_one_line(line: CommandLine, name: str) -> None:
    assert line("topics", "create", name, "-p", "2").status == 0
    wait_for(line, name, 2)
    assert line("topics", "create", name).failure == f"Topic '{name}' already exists (TOPIC_ALREADY_EXISTS)"
    assert line("topics", "create", name, "--if-not-exists").out == f"Nothing to do for topic {name}.\n"
    near = f"There is no topic '{name}x': did you mean '{name}'?"
    assert line("topics", "describe", name + "x").failure == near
    assert line("topics", "alter", name + "x", "-p", "3").failure == near
    # Nothing is deleted if one of several names is wrong.
    assert line("topics", "delete", name, name + "x").failure == near
    assert [one["topic"] for one in line.json("topics", "describe", name)] == [name]
    far = line("topics", "delete", "nothing-like-it-at-all")
    assert far.failure == (
        "There is no topic 'nothing-like-it-at-all': `pykbroker topics list` names those that there are"
    )
    assert "(INVALID_PARTITIONS)" in line("topics", "alter", name, "-p", "1").failure
    wrong_key = line("topics", "create", name + "-2", "-c", "retention.mz=1").failure
    assert wrong_key == "Unknown topic config name: retention.mz: did you mean retention.ms?"
    wrong_value = line("topics", "create", name + "-2", "-c", "retention.ms=x").failure
    assert wrong_value.startswith("Invalid value x for configuration retention.ms: Not a number of type LONG")
    assert "(INVALID_REPLICATION_FACTOR)" in line("topics", "create", name + "-2", "-r", "9").failure
    assert "(INVALID_TOPIC_EXCEPTION)" in line("topics", "create", "a/b").failure
    assert [row for row in line.json("topics", "list") if row["topic"].startswith(name + "-")] == []


def test_what_was_done_before_a_failure_is_told(line: CommandLine, name: str) -> None:
    done = line("topics", "create", name + "-1", name + "-1", name + "-2")
    assert (done.status, done.out) == (1, f"Created topic {name}-1.\n")
    assert done.failure == f"Topic '{name}-1' already exists (TOPIC_ALREADY_EXISTS)"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create",), "Missing argument 'TOPIC...'."),
        (("create", "t", "-p", "0"), "Invalid value for '-p' / '--partitions': 0 is not in the range x>=1."),
        (("create", "t", "-c", "x"), "--config takes KEY=VALUE, not 'x'"),
        (("alter", "t"), "Say what to alter: --partitions, --config or --delete-config."),
        (("list", "--under-replicatd"), "No such option '--under-replicatd'. Did you mean '--under-replicated'?"),
        (("lst",), "No such command 'lst'. Did you mean 'list'?"),
        (("list", "-o", "yaml"), "Invalid value for '-o' / '--output': 'yaml' is not one of 'table', 'json'."),
    ],
)
def test_wrong_words_are_one_line(line: CommandLine, words: tuple[str, ...], said: str) -> None:
    assert line("topics", *words).failure.startswith(said)
