"""Spark's load model of a real node, compared with plain Python, and the file that `balance plan` takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from compat_tests.spark.pipeline.driver import write_config
from example.secured_node import PIPELINE, secured_node
from pipeline.config import Config
from pipeline.errors import PipelineError
from pipeline.loads_job import TOPIC, load, write
from pipeline.partition_rates import Window, broker_rates, newest_window, of_window, partition_rates, reports
from pykbroker.testing import Broker
from pykbroker.tools.balance.load_file import read_loads
from testkit.nodes.nodes import eventually
from testkit.nodes.told_loads import REPORTING
from testkit.nodes.told_loads import reports as told
from testkit.nodes.wire import Wire, batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def config(folder: Path, bootstrap: str) -> Path:
    file = folder / "cluster.toml"
    file.write_text(f'[kafka]\nbootstrap.servers = "{bootstrap}"\n', encoding="utf-8")
    return file


def expected(found: list[dict[str, Any]], begin_ms: int, end_ms: int) -> dict[tuple[str, int], tuple[float, float]]:
    """Return the bytes in and out per second, computed in plain Python."""
    sums: dict[tuple[str, int], list[float]] = {}
    for one in found:
        if one["end_ms"] > begin_ms and one["end_ms"] - one["duration_ms"] < end_ms:
            for row in one["partitions"]:
                total = sums.setdefault((row["topic"], row["partition"]), [0, 0, 0])
                total[0] += row["bytes_in"]
                total[1] += row["bytes_out"]
                total[2] += one["duration_ms"] / 1000
    return {place: (total[0] / total[2], total[1] / total[2]) for place, total in sums.items()}


def test_the_model_of_a_node_is_that_of_plain_python(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(REPORTING) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t", 2)
        with pytest.raises(PipelineError):
            write(spark, load(config(tmp_path, broker.bootstrap_servers)), tmp_path / "loads", 1, topic="t")
        for _ in range(5):
            wire.produce("t", batch(b"v" * 1000), partition=0)
            assert wire.fetch("t").records
        eventually("some reports", lambda: len(told([wire])) > 15 or None)
        file = tmp_path / "loads.jsonl"
        with pytest.raises(PipelineError, match=r"% of the window is there, and 95% are needed; brokers with less: 1"):
            write(spark, load(config(tmp_path, broker.bootstrap_servers)), file, 600)
        assert not file.exists()
        head = write(spark, load(config(tmp_path, broker.bootstrap_servers)), file, 2.0)
        found = told([wire])
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert head["partitions"] == len(lines)
    assert head["coverage"] > 0.95
    assert [each["broker"] for each in head["brokers"]] == [1]
    model = {(row["topic"], row["partition"]): (row["bytes_in"], row["bytes_out"]) for row in lines}
    plain = expected(found, head["begin_ms"], head["end_ms"])
    assert model.keys() == plain.keys()
    # The loads that `balance plan --loads` reads from the file.
    taken = read_loads(file.read_text(encoding="utf-8"))
    assert {place: (each.bytes_in, each.bytes_out) for place, each in taken.items()} == model
    for place, (bytes_in, bytes_out) in plain.items():
        assert model[place] == (pytest.approx(bytes_in), pytest.approx(bytes_out))


def test_what_keeps_the_job_from_reading_is_a_line(spark: SparkSession, tmp_path: Path) -> None:
    with secured_node(tmp_path, REPORTING) as node:
        kafka = {"bootstrap.servers": node.bootstrap}
        right = load(write_config(tmp_path / "right.toml", {"kafka": kafka, "security": node.security}))
        security = {**node.security, "password_file": "", "password": "not-what-it-is"}
        wrong = load(write_config(tmp_path / "wrong.toml", {"kafka": kafka, "security": security}))

        def refused(config: Config, topic: str = TOPIC) -> PipelineError:
            with pytest.raises(PipelineError) as error:
                write(spark, config, tmp_path / "loads.jsonl", 1, topic)
            assert "\tat " not in str(error.value)
            return error.value

        missing = refused(right)
        assert missing.message == f"TOPIC_AUTHORIZATION_FAILED: User:{PIPELINE} lacks READ on topic {TOPIC}"
        assert f"--allow-principal User:{PIPELINE} --operation Read --topic {TOPIC}" in missing.advice
        node.allow(PIPELINE, {"t": "READ"})
        assert refused(right, "t").message == "topic t does not exist"
        assert "[security]" in refused(wrong).advice
        assert "not-what-it-is" not in str(refused(wrong))


def row(topic: str, **more: object) -> dict[str, object]:
    counts = dict.fromkeys(
        (
            *("bytes_in", "messages_in", "produce_requests", "bytes_out", "fetch_requests"),
            *("replication_bytes_in", "replication_fetches_in", "replication_bytes_out", "replication_fetches_out"),
        ),
        0,
    )
    return {"topic": topic, "partition": 0, "leader": True, "replicas": [1, 2], "cpu_share": 0.0, **counts, **more}


def report(broker: int, sequence: int, *rows: dict[str, object], **more: object) -> dict[str, object]:
    """Return the report of the interval number `sequence`, which has ten seconds."""
    return {
        "schema": 1,
        "cluster_id": "c",
        "broker": broker,
        "broker_epoch": 1,
        "sequence": sequence,
        "part": 0,
        "parts": 1,
        "end_ms": 10_000 * (sequence + 1),
        "duration_ms": 10_000,
        "interval_ms": 10_000,
        "cpu_ms": 0.0,
        "partitions": list(rows),
        **more,
    }


def raw(spark: SparkSession, *values: object) -> DataFrame:
    return spark.createDataFrame([(json.dumps(each),) for each in values], "value STRING")


def test_the_window_ends_where_every_partition_was_read(spark: SparkSession) -> None:
    """The partition of broker 1 was read at 30 s, and that of broker 2 some time later."""
    found = reports(raw(spark, report(1, 1), report(1, 2), *(report(2, number) for number in range(1, 5))))
    assert newest_window(found, 10, read_ms=31_000) == Window(11_000, 21_000)
    assert newest_window(found, 10, read_ms=99_000) == Window(30_000, 40_000)


def test_a_window_of_two_brokers(spark: SparkSession) -> None:
    """The leader moves from 1 to 2, broker 2 misses one report of four, and broker 3 is silent."""
    follows: dict[str, object] = {"leader": False, "replicas": []}
    whole = [
        report(1, 0, row("t", bytes_in=1000, cpu_share=0.2)),
        report(1, 1, row("t", bytes_in=1000, cpu_share=0.4)),
        report(1, 2, row("t", **follows, replication_bytes_in=500)),
        report(1, 3, row("t", **follows, replication_bytes_in=500)),
        report(2, 0, row("t", **follows, replication_bytes_in=1000, cpu_share=0.1)),
        report(2, 2, row("t", bytes_in=500, bytes_out=40, size=9, follower_lag=3, replicas=[2, 1, 3])),
        report(2, 3, row("t", bytes_in=500, bytes_out=40, size=8)),
    ]
    window = Window(0, 40_000)
    # A record that comes twice, and a record that is no report, change nothing.
    chosen = of_window(reports(raw(spark, *whole, whole[0], "no report", {"broker": 1})), window)
    (found,) = [each.asDict() for each in partition_rates(chosen, window).collect()]
    assert found.pop("leader_cpu") == pytest.approx(0.15)
    assert found.pop("follower_cpu") == pytest.approx(0.1 / 3)
    assert found.pop("replication_bytes_in") == pytest.approx(2000 / 30)
    assert found == {
        "topic": "t",
        "partition": 0,
        "bytes_in": 75.0,
        "bytes_out": 2.0,
        "messages_in": 0.0,
        "produce_requests": 0.0,
        "fetch_requests": 0.0,
        "replication_bytes_out": 0.0,
        "size": 9,
        "follower_lag": 3,
        "coverage": 1.0,
    }
    brokers = {each["broker"]: each for each in broker_rates(chosen, window).collect()}
    assert {number: each["coverage"] for number, each in brokers.items()} == {1: 1.0, 2: 0.75, 3: 0.0}
    assert brokers[1]["bytes_in"] == 50.0
    assert brokers[2]["replication_bytes_in"] == pytest.approx(1000 / 30)
