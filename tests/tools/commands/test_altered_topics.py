"""`pykbroker topics alter` says what changed, and `describe` which replicas a write needs."""

from __future__ import annotations

import json

import pytest

from pykbroker.__main__ import main
from pykbroker.testing import Broker

pytestmark = pytest.mark.slow


def test_the_old_and_the_new_value_of_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=1)
        at = ("-b", broker.bootstrap_servers)
        assert main(["topics", "alter", "orders", "-c", "retention.ms=2h", "-p", "3", *at]) == 0
        assert capsys.readouterr().out == (
            "Altered topic orders: retention.ms=7200000 (before: 604800000), partitions=3 (before: 1).\n"
        )
        words = ("--delete-config", "retention.ms", "-c", "min.insync.replicas=2")
        assert main(["topics", "alter", "orders", *words, *at]) == 0
        said = capsys.readouterr().out
        assert "retention.ms deleted (before: 7200000)" in said
        assert "min.insync.replicas=2 (before: 1)" in said


def test_a_description_has_the_replicas_that_a_write_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as broker:
        at = ("-b", broker.bootstrap_servers)
        assert main(["topics", "create", "orders", *at]) == 0
        assert main(["topics", "create", "safe", "-c", "min.insync.replicas=1", *at]) == 0
        capsys.readouterr()
        assert main(["topics", "describe", "orders", "safe", *at]) == 0
        headings = [line for line in capsys.readouterr().out.splitlines() if "replication factor" in line]
        assert headings[0].endswith("replication factor 1, min.insync.replicas 1, configurations: none of its own")
        # It is not there twice.
        assert headings[1].endswith("replication factor 1, configurations: min.insync.replicas=1")
        assert main(["topics", "describe", "orders", "safe", "-o", "json", *at]) == 0
        assert [topic["min_insync_replicas"] for topic in json.loads(capsys.readouterr().out)] == [1, 1]
