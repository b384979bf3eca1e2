"""Builds programs of tests (Go, Java, npm): once per content, kept in .cache/ for all tests.

The name of a result is a hash of its sources, so that two checkouts that share a cache never take each other's program.
An existing folder is complete, because it gets its name only when everything in it is done.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from testkit import needs
from testkit.kept import kept
from testkit.oracle.kafka import KAFKA, kafka_libs, resolved

GO = (1, 26)


def built(kind: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Return the folder that `make` filled from these sources, now or earlier."""
    digest = hashlib.sha256()
    for source in sorted(sources):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return kept(kind, digest.hexdigest()[:16], make)


def run(command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def go_program(module: Path) -> Path:
    """Return the binary of a Go module's main package."""
    go = needs.go(least=GO)
    sources = [path for pattern in ("*.go", "go.mod", "go.sum") for path in module.glob(pattern)]
    return built("go", sources, lambda folder: run([go, "build", "-o", str(folder / "program"), "."], cwd=module)) / (
        "program"
    )


def java_classes(*sources: Path, pom: Path | None = None, version: str = KAFKA) -> list[Path]:
    """Return the class path with sources that are compiled against a release of Apache Kafka; `pom` names jars beyond
    its own."""
    more = [resolved(pom) / "*"] if pom is not None else []
    path = os.pathsep.join([f"{kafka_libs(version)}/*", *map(str, more)])

    def make(folder: Path) -> None:
        javac = needs.program("javac")
        run([javac, "-Xlint:all,-try,-processing", "-Werror", "-cp", path, "-d", str(folder), *map(str, sources)])

    return [built("java" if version == KAFKA else f"java-{version}", sources, make), *more]


def npm_packages(folder: Path) -> Path:
    """Return the `node_modules` of a folder with package.json and package-lock.json."""
    npm = needs.program("npm")
    sources = [folder / "package.json", folder / "package-lock.json"]

    def make(fresh: Path) -> None:
        for source in sources:
            shutil.copy(source, fresh)
        run([npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=fresh)

    return built("npm", sources, make) / "node_modules"
