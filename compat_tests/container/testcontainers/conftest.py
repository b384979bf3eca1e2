"""Testcontainers of several languages with the image under test."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence

import pytest

from compat_tests.container.containers import docker, fresh_name
from testkit import needs

OutputOf = Callable[[Sequence[str]], str]
#: No image can be pulled, not even Ryuk's, so the tests remove what the modules start. In a container the modules would
#: look for the address of its host with the help of another image.
ENVIRONMENT = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CHECKS_DISABLE": "true",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}


@pytest.fixture(scope="session")
def tagged(image: str) -> Iterator[str]:
    """The image under a name of this run, with a tag from which modules read the version of Confluent's image."""
    yield from named(image, "8.3.0")


@pytest.fixture
def tagged_7(image: str) -> Iterator[str]:
    """The same with a tag from the time of ZooKeeper, for modules that choose by it."""
    yield from named(image, "7.9.0")


def named(image: str, tag: str) -> Iterator[str]:
    """Give the image one more name. Containers of that name are removed with it."""
    name = f"{fresh_name()}:{tag}"
    docker("tag", image, name)
    try:
        yield name
    finally:
        listed = docker("ps", "-a", "--no-trunc", "--format", "{{.ID}} {{.Image}}").stdout.split("\n")
        for container in (line.split()[0] for line in listed if line.endswith(f" {name}")):
            docker("rm", "-fv", container, check=False)  # its module may be about to remove it
        docker("rmi", name)


@pytest.fixture(scope="session")
def output_of() -> OutputOf:
    """`output_of(["node", "program.js"])` returns the output of a program that uses a module."""

    def run(command: Sequence[str]) -> str:
        done = subprocess.run(
            command,
            env={**os.environ, **ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture(scope="session")
def in_this_process() -> None:
    """Configure Testcontainers for Python like `ENVIRONMENT`."""
    needs.python_package("testcontainers")
    from testcontainers.core.config import ConnectionMode, testcontainers_config

    testcontainers_config.ryuk_disabled = True
    testcontainers_config.tc_host_override = "127.0.0.1"
    testcontainers_config.connection_mode_override = ConnectionMode.docker_host
