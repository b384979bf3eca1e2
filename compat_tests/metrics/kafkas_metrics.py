"""The metrics of a running broker of Apache Kafka, read by JMX and named as pykbroker names its own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from compat_tests.built import java_classes
from testkit.oracle.kafka import java_command

_PATIENCE_S = 120


def kafkas_metrics(pid: int, patterns: Sequence[str]) -> dict[str, float]:
    """Return the metrics whose MBeans match one of the patterns of JMX, with their tags in alphabetical order."""
    classes = java_classes(Path(__file__).with_name("MetricNames.java"))
    command = [*java_command("MetricNames", extra_classpath=classes), str(pid), *patterns]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=_PATIENCE_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = {}
    for line in done.stdout.splitlines():
        name, attribute, value = line.split("\t")
        # An MBean of the older kind is one metric, and its name is a tag already.
        found[sorted_tags(name if ",name=" in name else f"{name},name={attribute}")] = float(value)
    return found


def sorted_tags(name: str) -> str:
    """Return the name of a metric with its tags in alphabetical order."""
    domain, _, tags = name.partition(":")
    return f"{domain}:{','.join(sorted(tags.split(',')))}"
