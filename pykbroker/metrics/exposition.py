"""The text for Prometheus: each metric under the name that jmx_exporter's rules for Apache Kafka give it, so that
dashboards made for these rules work with our nodes.

`kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec` is `kafka_server_brokertopicmetrics_messagesin_total`.
Responsible for names and text (Prometheus' text format 0.0.4). Not responsible for the numbers (registry.py) nor for
the listener. It writes line by line, because a node of ten thousand partitions has a hundred thousand lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pykbroker.metrics.registry import Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
#: Matches a comma only before another property, because a value, such as the path of a directory, may have commas.
_BETWEEN_PROPERTIES = re.compile(r",(?=[\w-]+=)")
#: a property whose value is quoted (`registry.tag`)
_QUOTED = re.compile(r'([\w-]+)="((?:[^"\\]|\\.)*)"(?:,|$)')
_ESCAPED = re.compile(r"\\(.)")
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricName(NamedTuple):
    """`labels`: all labels as the text has them, separated by commas."""

    name: str
    labels: str


def named(mbean: str, *, counts: bool) -> MetricName:
    """Return Prometheus' name of a Kafka MBean."""
    domain, _, properties = mbean.partition(":")
    words, labels = [domain], []
    for key, value in _properties(properties):
        if key in ("type", "name"):
            words.append(value)
        else:
            labels.append(f'{_NOT_IN_NAMES.sub("_", key)}="{value.translate(_ESCAPES)}"')
    name = _NOT_IN_NAMES.sub("_", "_".join(words)).lower()
    if counts and not words[-1].endswith("-count"):
        # The rules leave a name such as offset-commit-count as it is.
        name = f"{name.removesuffix('persec').removesuffix('_total')}_total"
    return MetricName(name, ",".join(labels))


def _properties(text: str) -> Iterator[tuple[str, str]]:
    if '="' not in text:
        for part in _BETWEEN_PROPERTIES.split(text):
            key, _, value = part.partition("=")
            yield key, value
        return
    while text:
        quoted = _QUOTED.match(text)
        if quoted is not None:
            yield quoted[1], _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], quoted[2])
            text = text[quoted.end() :]
            continue
        found = _BETWEEN_PROPERTIES.split(text, maxsplit=1)
        key, _, value = found[0].partition("=")
        yield key, value
        text = found[1] if len(found) > 1 else ""


def lines(samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the lines of the text, each with its line end. `samples` must be sorted by name."""
    family = ""
    for sample in samples:
        name, labels = named(sample.name, counts=sample.counts)
        if name != family:
            family = name
            yield f"# TYPE {name} {'counter' if sample.counts else 'gauge'}\n"
        yield f"{name}{{{labels}}} {sample.value:.17g}\n" if labels else f"{name} {sample.value:.17g}\n"
