"""Testcontainers of several languages with the image under test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from compat_tests import needs
from compat_tests.container.containers import docker, fresh_name

#: No image can be pulled, Ryuk's neither: what the modules start, the tests remove. Where tests run in a container the
#: modules would look for the address of its host with the help of another image.
ENVIRONMENT = {
    "TESTCONTAINERS_RYUK_DISABLED": "true",
    "TESTCONTAINERS_CHECKS_DISABLE": "true",
    "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
}


@pytest.fixture(scope="session")
def tagged(image: str) -> Iterator[str]:
    """The image under a name of this run, with a tag that modules read the version of Confluent's image out of."""
    yield from named(image, "8.3.0")


def named(image: str, tag: str) -> Iterator[str]:
    """One more name for the image. Containers of that name are removed with it."""
    name = f"{fresh_name()}:{tag}"
    docker("tag", image, name)
    try:
        yield name
    finally:
        listed = docker("ps", "-a", "--no-trunc", "--format", "{{.ID}} {{.Image}}").stdout.split("\n")
        for container in (line.split()[0] for line in listed if line.endswith(f" {name}")):
            docker("rm", "-fv", container)
        docker("rmi", name)


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """For programs that use a module."""
    return {**os.environ, **ENVIRONMENT}


@pytest.fixture(scope="session")
def in_this_process() -> None:
    """Testcontainers for Python as `ENVIRONMENT` has it."""
    needs.python_package("testcontainers")
    from testcontainers.core.config import ConnectionMode, testcontainers_config

    testcontainers_config.ryuk_disabled = True
    testcontainers_config.tc_host_override = "127.0.0.1"
    testcontainers_config.connection_mode_override = ConnectionMode.docker_host
