"""The contents of pipeline.toml, and a message for each mistake that people make."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

import pytest

from pipeline import config
from pipeline.errors import PipelineError
from testkit.needs import ROOT

LEAST = """
checkpoints = "file:/c/"
[kafka]
bootstrap.servers = "localhost:9092"
[lake]
path = "l"
"""


def load(path: Path, text: str) -> config.Config:
    file = path / "pipeline.toml"
    file.write_text(text)
    return config.load(file)


def test_the_least_that_is_needed(tmp_path: Path) -> None:
    found = load(tmp_path, LEAST)
    assert found.kafka_options() == {"kafka.bootstrap.servers": "localhost:9092"}
    assert found.checkpoint("lake") == "file:/c/lake"
    assert found.topics.dead_letters == "dead-letters"
    assert found.source.fail_on_data_loss
    assert found.times.watermark_delay_s == 3600 + 60 + 600


def test_the_example_says_the_defaults() -> None:
    """Each commented key of the example is a key with its default, so that it changes nothing when it is uncommented.
    The exceptions are Spark's own settings, which must be shown as Spark gets them."""
    text = (ROOT / "spark" / "pipeline.toml").read_text()
    before, _, rest = text.partition("# [security]")  # tests/spark/test_secured.py
    text = before + rest.partition("\n\n")[2]
    lines = [line.removeprefix("# ") if " = " in line else line for line in text.splitlines()]
    taken = config.parse(tomllib.loads("\n".join(lines)))
    plain = config.parse({**tomllib.loads(text), "spark": {"spark.sql.shuffle.partitions": 4}})
    s3a = "spark.hadoop.fs.s3a"
    shown = {"spark.sql.streaming.stateStore.providerClass", f"{s3a}.endpoint", f"{s3a}.endpoint.region"}
    assert taken.spark.keys() - plain.spark.keys() == {*shown, f"{s3a}.path.style.access"}
    assert dataclasses.replace(taken, spark=plain.spark) == plain
    for table in (config.Topics, config.Source, config.Times, config.LakeConfig):
        assert all(f"{field.name} = " in text for field in dataclasses.fields(table))


def test_other_peoples_keys_are_passed_on(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        LEAST + '[spark]\n"spark.ui.enabled" = false\nspark.sql.shuffle.partitions = 8\n[kafka.fetch]\nmax.bytes = 7',
    )
    assert found.spark == {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "8"}
    assert found.kafka == {"bootstrap.servers": "localhost:9092", "fetch.max.bytes": "7"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "checkpoints: missing"),
        ('checkpoints = "c"', "[lake] path: missing"),
        ('checkpoints = "c"\n[lake]\npath = "l"', "[kafka] bootstrap.servers: missing"),
        (LEAST + "target_fiel_bytes = 1", "[lake] target_fiel_bytes: unknown key; did you mean target_file_bytes?"),
        ("chekpoints = 1", "chekpoints: unknown key; did you mean checkpoints?"),
        (LEAST + "compact_min_files = 1", "[lake] compact_min_files: 1 is too small, 2 is the least"),
        (LEAST + "compact_min_files = '2'", "[lake] compact_min_files: a whole number is expected, not '2'"),
        (LEAST + "compact_min_files = true", "[lake] compact_min_files: a whole number is expected, not True"),
        (LEAST + "[source]\nfail_on_data_loss = 0", "[source] fail_on_data_loss: true or false is expected, not 0"),
        (LEAST + "[times]\nwindow_s = 0", "[times] window_s: 0 is too small, 1 is the least"),
        (LEAST + "[topics]\nwindows = 'a b'", "[topics] windows: 'a b' is no name of a topic"),
        (LEAST + "[topics]\nwindows = 'orders'", "[topics] windows: 'orders' is the topic of orders already"),
        (LEAST + "[spark]\na.b = [1]", "[spark] a.b: text or a number is expected"),
        ("lake = 5\n" + LEAST.replace("[lake]", "[kafka.x]"), "lake: a table [lake] is expected"),
        ("a = ", "not TOML: Invalid value (at end of document)"),
    ],
)
def test_a_mistake_is_named_with_its_table_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PipelineError) as raised:
        load(tmp_path, text)
    assert raised.value.message == f"pipeline.toml: {message}"


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="No such file") as raised:
        config.load(tmp_path / "none.toml")
    assert "--config" in raised.value.advice
