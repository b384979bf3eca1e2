"""`pykbroker migrate check` and `plan` on one node that Apache Kafka and pykbroker own in turn, while it runs and after
its stop. The files of Apache Kafka are judged, and they stay as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from compat_tests.on_disk.home import Home, Owner
from compat_tests.topics import Topics
from pykbroker.__main__ import main
from pykbroker_log import names
from testkit.clients import wait_until
from testkit.logs.old_batches import old_batches

pytestmark = pytest.mark.slow


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    capsys.readouterr()
    status = main(["migrate", *words, "-o", "json"])
    said = capsys.readouterr()
    return status, json.loads(said.out)


def contents(home: Home) -> dict[str, bytes]:
    return {
        str(each): each.read_bytes()
        for folder in home.log_dirs
        for each in sorted(Path(folder).rglob("*"))
        if each.is_file()
    }


def test_a_node_of_both_is_checked_while_it_runs_and_after_its_stop(capsys: pytest.CaptureFixture[str]) -> None:
    with Home(log_dirs=("data", "more")) as home:
        home.format("kafka")
        file = str(home.properties)

        def check(*words: str, level: str) -> list[str]:
            status, rows = asked(capsys, "check", "-c", file, *words)
            assert status == (1 if any(row["level"] == "stop" for row in rows) else 0)
            return [row["what"] for row in rows if row["level"] == level]

        owners: tuple[Owner, ...] = ("kafka", "pykbroker", "kafka")
        for owner in owners:
            home.start(owner)
            if owner == owners[0]:
                assert main(["topics", "create", "orders", "-p", "3", "--if-not-exists", "-b", home.bootstrap]) == 0
            assert check("-b", home.bootstrap, level="stop") == []
            assert any("only on this node" in line for line in check("-b", home.bootstrap, level="warn"))
            assert "The node runs on the directory, and the cluster has it" in check("-b", home.bootstrap, level="ok")
            # Without the cluster the check cannot tell whose process it is.
            (line,) = check(level="stop")
            assert line == "A process runs on the directory"
            home.stop()
            before = contents(home)
            assert check(level="stop") == []
            assert not any(names.CLEAN_SHUTDOWN in line for line in check(level="warn"))
            assert contents(home) == before
        # Apache Kafka was the last owner, so the note of pykbroker no longer counts.
        assert any(line.startswith("pykbroker.flushed is of an earlier stay") for line in check(level="ok"))


def consumed(home: Home, count: int) -> list[tuple[int | None, bytes | None]]:
    """Return (offset, value) of the first records of the topic."""
    settings = {"bootstrap.servers": home.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition("old", 0, 0)])
    found: list[tuple[int | None, bytes | None]] = []

    def are_there() -> bool:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None
            found.append((message.offset(), message.value()))
        return len(found) == count

    try:
        wait_until(are_there, f"{count} records are consumed")
    finally:
        consumer.close()
    return found


def test_record_batches_of_magic_1_stop_the_check_and_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    """Apache Kafka 4.x reads them, and reads them again after a start of pykbroker that was refused."""
    records = [(0, b"first"), (1, b"second")]
    with Home() as home:
        home.format("kafka")
        home.start("kafka")
        Topics(home.bootstrap).create(name="old", config={"retention.ms": "-1"})
        home.stop()
        # As Apache Kafka 0.10 has left it: it had neither leader epochs nor producers.
        folder = home.log_dirs[0] / "old-0"
        segment = folder / names.segment_file(0, names.LOG)
        segment.write_bytes(old_batches(1, 0))
        (folder / names.LEADER_EPOCHS).unlink()
        home.start("kafka")
        assert consumed(home, 2) == records
        home.stop()
        status, rows = asked(capsys, "check", "-c", str(home.properties))
        assert status == 1
        assert [row["what"] for row in rows if row["level"] == "stop"] == [
            "1 log with record batches of a format that is not served: old-0 (magic 1)"
        ]
        before = segment.read_bytes()
        with pytest.raises(RuntimeError, match="pykbroker ended with 1"):
            home.start("pykbroker")
        home.stop()
        said = [line for line in home.said("pykbroker").splitlines() if line.startswith("pykbroker: ")]
        assert len(said) == 1, said
        assert "record batches of magic 1 are not served" in said[0]
        assert segment.read_bytes() == before
        home.start("kafka")
        assert consumed(home, 2) == records
        home.stop()


def test_the_plan_of_a_live_cluster_of_apache_kafka(capsys: pytest.CaptureFixture[str]) -> None:
    with Home() as home:
        home.format("kafka")
        home.start("kafka")
        status, steps = asked(capsys, "plan", "-b", home.bootstrap)
        assert status == 0
        assert [step["command"].split()[0] for step in steps if step["node"] is not None] == [
            "pykbroker",
            "kill",
            "pykbroker",
            "pykbroker",
            "pykbroker",
        ]
        home.stop()
