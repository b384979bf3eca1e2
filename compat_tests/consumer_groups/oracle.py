"""A small Java program over Apache Kafka's jars that answers line by line."""

from __future__ import annotations

import subprocess
from pathlib import Path

from compat_tests.built import java_classes
from testkit.oracle.kafka import java_command


class Oracle:
    """`program`: the name of a .java file in this folder."""

    def __init__(self, program: str) -> None:
        classes = java_classes(Path(__file__).with_name(f"{program}.java"))
        self._process = subprocess.Popen(
            java_command(program, extra_classpath=classes),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
        )

    def ask(self, line: str) -> str:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"Apache Kafka's code threw at {line!r}"
        return answer[:-1]

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(timeout=10)
