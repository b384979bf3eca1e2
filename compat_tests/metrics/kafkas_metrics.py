"""The metrics of a running broker of Apache Kafka, read by JMX and named as pykbroker names its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from compat_tests.built import java_classes
from testkit.oracle.kafka import java_command

_PATIENCE_S = 120
_PERCENTILE = re.compile(r"(\d+)thPercentile")


def kafkas_metrics(pid: int, patterns: Sequence[str]) -> dict[str, float]:
    """Return the metrics whose MBeans match one of the patterns of JMX, with their tags in alphabetical order."""
    classes = java_classes(Path(__file__).with_name("MetricNames.java"))
    command = [*java_command("MetricNames", extra_classpath=classes), str(pid), *patterns]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE_S)
    assert done.returncode == 0, done.stderr
    beans: dict[str, dict[str, str]] = {}
    for line in done.stdout.splitlines():
        name, attribute, value = line.split("\t")
        beans.setdefault(name, {})[attribute] = value
    return {
        sorted_tags(named): value for name, attributes in beans.items() for named, value in _numbers(name, attributes)
    }


def _numbers(name: str, attributes: Mapping[str, str]) -> Iterator[tuple[str, float]]:
    if ",name=" not in name:
        for attribute, value in attributes.items():
            yield f"{name},name={attribute}", float(value)
    elif "Value" in attributes:
        # An MBean of the older kind is one metric, and its name is a tag already.
        yield name, float(attributes["Value"])
    elif "50thPercentile" in attributes:
        yield re.sub(",name=([^,]*)", r",name=\1-count", name), float(attributes["Count"])
        for attribute, value in attributes.items():
            found = _PERCENTILE.fullmatch(attribute)
            if found is not None:
                yield f"{name},quantile=0.{found[1]}", float(value)
    else:
        # Its rates are not shown, only the count of events.
        yield name, float(attributes["Count"])


def sorted_tags(name: str) -> str:
    """Return the name of a metric with its tags in alphabetical order."""
    domain, _, tags = name.partition(":")
    return f"{domain}:{','.join(sorted(tags.split(',')))}"
