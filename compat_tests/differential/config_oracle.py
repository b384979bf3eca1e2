"""Runs the small Java programs of this folder against Apache Kafka's jars; nothing is started that listens."""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from compat_tests import needs
from compat_tests.oracle.kafka import TOOL_JVM, kafka_libs

HERE = Path(__file__).parent


@functools.cache
def _compiled(program: str) -> str:
    classes = tempfile.mkdtemp(prefix="pykbroker-config-oracle-")
    javac = [needs.program("javac"), "-cp", f"{kafka_libs()}/*", "-d", classes, str(HERE / f"{program}.java")]
    subprocess.run(javac, check=True, capture_output=True, timeout=120)
    return classes


def run(program: str, request: object = None) -> Any:
    """The JSON that the program prints; `request` goes to its stdin as JSON."""
    done = subprocess.run(
        [needs.program("java"), *TOOL_JVM, "-cp", f"{_compiled(program)}:{kafka_libs()}/*", program],
        input=json.dumps(request),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return json.loads(done.stdout)
