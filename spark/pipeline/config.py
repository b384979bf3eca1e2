"""pipeline.toml -> `Config`, frozen. Every mistake in the file is one `PipelineError` that names the table and the key.

The sections `[kafka]` and `[spark]` have the keys of Kafka and Spark, which are passed on unchanged.
`bootstrap.servers` may be written without quotes (TOML then nests it, and it is put together again here). All other
keys are fields below; those of `[security]` are in `secured`, and their result is in `Config.kafka`. No message and no
repr contains a secret.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_type_hints

from pipeline import secured
from pipeline.errors import PipelineError
from pipeline.secured import Security

TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _at_least(least: int, default: int) -> Any:
    return field(default=default, metadata={"least": least})


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics; a missing name means the default."""

    clicks: str = "clicks"
    orders: str = "orders"
    dead_letters: str = "dead-letters"
    windows: str = "event-windows"
    sessions: str = "user-sessions"
    conversions: str = "conversions"
    metrics: str = "pipeline-metrics"


@dataclass(frozen=True, slots=True)
class Source:
    """The way to read the raw topics."""

    max_offsets_per_trigger: int = _at_least(1, 100_000)
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of event time."""

    allowed_lateness_s: int = _at_least(0, 3600)
    max_skew_s: int = _at_least(0, 60)
    slack_s: int = _at_least(0, 600)
    window_s: int = _at_least(1, 600)
    session_gap_s: int = _at_least(1, 1800)
    attribution_s: int = _at_least(1, 3600)

    @property
    def watermark_delay_s(self) -> int:
        """The delay of the watermark after the newest event. It covers the allowed lateness, the difference of clocks,
        and partitions that are read at different speeds."""
        return self.allowed_lateness_s + self.max_skew_s + self.slack_s


@dataclass(frozen=True, slots=True)
class LakeConfig:
    """The place of the lake, and when its small files are compacted."""

    path: str
    target_file_bytes: int = _at_least(1, 128 * 1024 * 1024)
    compact_min_files: int = _at_least(2, 16)


@dataclass(frozen=True, slots=True)
class Config:
    """The configuration of the jobs. `checkpoints` and `lake.path` are paths or URIs as Spark takes them. `kafka` has
    properties of the Java client, with those that `[security]` stands for."""

    checkpoints: str
    lake: LakeConfig
    kafka: dict[str, str]
    topics: Topics = field(default_factory=Topics)
    source: Source = field(default_factory=Source)
    times: Times = field(default_factory=Times)
    spark: dict[str, str] = field(default_factory=dict)
    trigger_s: int = _at_least(0, 10)

    def checkpoint(self, job: str) -> str:
        """Return the checkpoint directory of one job."""
        return f"{self.checkpoints.rstrip('/')}/{job}"

    def kafka_options(self) -> dict[str, str]:
        """Return the client's configuration as options of Spark's source and sink."""
        return {f"kafka.{key}": value for key, value in self.kafka.items()}


def load(path: str | Path) -> Config:
    """Read and check a file.

    Raises:
        PipelineError: the file does not exist, it is not TOML, or a key is unknown, missing or of the wrong kind.
    """
    name = Path(path).name
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PipelineError(
            f"{path}: {error.strerror}", "name the configuration file with --config; spark/pipeline.toml is an example"
        ) from None
    except UnicodeDecodeError:
        raise PipelineError(f"{name}: not UTF-8") from None
    try:
        return parse(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise PipelineError(f"{name}: not TOML: {error}") from None
    except PipelineError as error:
        raise PipelineError(f"{name}: {error.message}", error.advice) from None


def parse(values: Mapping[str, Any]) -> Config:
    """Return the configuration in the values of a TOML file, checked.

    Raises:
        PipelineError: as `load`, without the name of the file.
    """
    config = cast(Config, _table(Config, {key: value for key, value in values.items() if key != "security"}, ""))
    config = replace(config, kafka=_kafka(config, values), spark=secured.hidden(config.spark))
    if not config.kafka.get("bootstrap.servers"):
        raise PipelineError("[kafka] bootstrap.servers: missing", 'for example bootstrap.servers = "localhost:9092"')
    if not config.checkpoints:
        raise PipelineError("checkpoints: empty")
    if not config.lake.path:
        raise PipelineError("[lake] path: empty")
    used: dict[str, str] = {}
    for key in dataclasses.fields(Topics):
        topic = getattr(config.topics, key.name)
        if not TOPIC_NAME.fullmatch(topic) or topic in (".", ".."):
            raise PipelineError(f"[topics] {key.name}: {topic!r} is no name of a topic")
        if topic in used:
            raise PipelineError(f"[topics] {key.name}: {topic!r} is the topic of {used[topic]} already")
        used[topic] = key.name
    return config


def _kafka(config: Config, values: Mapping[str, Any]) -> dict[str, str]:
    """Return `[kafka]` with the properties that `[security]` stands for."""
    secured.check(config.kafka, has_table="security" in values)
    if "security" not in values:
        return secured.hidden(config.kafka)
    security = _value(Security, values["security"], "", "security", {})
    return secured.hidden(config.kafka) | secured.settings(cast(Security, security))


def _table(kind: type, values: Mapping[str, Any], table: str) -> object:
    """Return one table of the file as an instance of its dataclass."""
    hints = get_type_hints(kind)
    fields = {each.name: each for each in dataclasses.fields(kind)}
    for key in values:
        if key not in fields:
            close = difflib.get_close_matches(key, fields, n=1)
            raise PipelineError(f"{_at(table, key)}: unknown key" + (f"; did you mean {close[0]}?" if close else ""))
    made: dict[str, object] = {}
    for key, each in fields.items():
        if key in values:
            made[key] = _value(hints[key], values[key], table, key, each.metadata)
        elif dataclasses.is_dataclass(hints[key]) or hints[key] == dict[str, str]:
            made[key] = _value(hints[key], {}, table, key, {})
        elif each.default is dataclasses.MISSING:
            raise PipelineError(f"{_at(table, key)}: missing")
    return kind(**made)


def _value(kind: Any, value: object, table: str, key: str, more: Mapping[str, Any]) -> object:
    if dataclasses.is_dataclass(kind) or kind == dict[str, str]:
        if not isinstance(value, dict):
            raise PipelineError(f"{key}: a table [{key}] is expected")
        return dict(_flat(value, key)) if kind == dict[str, str] else _table(cast(type, kind), value, key)
    if type(value) is not kind:
        names = {str: "text in quotes", int: "a whole number", bool: "true or false"}
        but = "" if more.get("hidden") else f", not {value!r}"
        raise PipelineError(f"{_at(table, key)}: {names[kind]} is expected{but}")
    least: int | None = more.get("least")
    if least is not None and cast(int, value) < least:
        raise PipelineError(f"{_at(table, key)}: {value} is too small, {least} is the least")
    return value


def _flat(values: Mapping[str, object], table: str, prefix: str = "") -> list[tuple[str, str]]:
    """Return dotted names and their values as text; true and false as Java writes them."""
    found: list[tuple[str, str]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _flat(value, table, f"{prefix}{key}.")
        elif isinstance(value, bool):
            found.append((prefix + key, str(value).lower()))
        elif isinstance(value, str | int | float):
            found.append((prefix + key, str(value)))
        else:
            raise PipelineError(f"[{table}] {prefix}{key}: text or a number is expected")
    return found


def _at(table: str, key: str) -> str:
    return f"[{table}] {key}" if table else key
