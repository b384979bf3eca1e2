"""Runs the small Java programs of this folder against the jars of Apache Kafka 4.4.0; none of them starts a server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from compat_tests.built import java_classes
from testkit.oracle.kafka import NEWEST, java_command


def run(program: str, request: object = None) -> Any:
    """Return the JSON that the program prints; `request` goes to its stdin as JSON."""
    classes = java_classes(Path(__file__).with_name(f"{program}.java"), version=NEWEST)
    done = subprocess.run(
        java_command(program, extra_classpath=classes, version=NEWEST),
        input=json.dumps(request),
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return json.loads(done.stdout)
