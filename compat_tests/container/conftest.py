"""The image, built once per run, and containers that are removed after their test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import pytest

from compat_tests.container.containers import Container, docker, fresh_name, settings
from compat_tests.container.projects import Project
from testkit import needs
from testkit.oracle.kafka import kafka_libs

BASE = "pykbroker-base"
IMAGE = "pykbroker:under-test"
APACHE_KAFKA = "pykbroker-apache-kafka:under-test"
NewContainer = Callable[..., Container]


@pytest.fixture(scope="session")
def base() -> str:
    """A base image of Debian's packages, built without a registry."""
    needs.docker_daemon()
    if docker("image", "inspect", BASE, check=False).returncode:
        needs.program("debootstrap")
    _script("base-image.sh", BASE)
    return BASE


@pytest.fixture(scope="session")
def image(base: str, against: str) -> str:
    """The image of `make image BASE=pykbroker-base`. PYKBROKER_IMAGE names an existing one."""
    if against == "apache-kafka":
        pytest.skip("what is judged here is the image of pykbroker")
    given = os.environ.get("PYKBROKER_IMAGE")
    if given:
        return given
    _script("build.sh", base, IMAGE)
    return IMAGE


@pytest.fixture(scope="session")
def apache_kafka_image(base: str) -> str:
    """Apache Kafka's jars and Debian's Java on the same base, as `make apache-kafka-image` builds it."""
    _script("apache-kafka.sh", base, APACHE_KAFKA, str(kafka_libs()))
    return APACHE_KAFKA


@pytest.fixture(scope="session")
def spark_images(base: str) -> dict[str, str]:
    """Spark with the pipeline, and Prometheus, as `make spark-image` builds them: variables of compose.spark.yaml."""
    needs.python_package("pyspark")
    needs.program("mvn")
    images = {
        "PYKBROKER_SPARK_IMAGE": "pykbroker-spark:under-test",
        "PYKBROKER_PROMETHEUS_IMAGE": "pykbroker-prometheus:under-test",
    }
    _script("spark.sh", base, *images.values())
    return images


def _script(name: str, *words: str) -> None:
    path = needs.ROOT / "docker" / name
    done = subprocess.run(
        [str(path), *words],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"


@pytest.fixture
def used() -> Iterator[ExitStack]:
    """Resources of the engine that the test uses, released in reverse order: a network after its containers."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def new_container(image: str, used: ExitStack) -> NewContainer:
    """`new_container({"KAFKA_NODE_ID": "1"}, options=["--read-only"], command=["sh", "-c", "..."])` returns a running
    one."""

    def make(
        variables: Mapping[str, str] | None = None, *, options: Sequence[str] = (), command: Sequence[str] = ()
    ) -> Container:
        container = Container(image, [*settings(variables or {}), *options], list(command))
        used.callback(container.close)
        return container

    return make


@pytest.fixture
def volume(image: str, used: ExitStack) -> str:
    """A named volume."""
    name = fresh_name()
    docker("volume", "create", name)
    used.callback(docker, "volume", "rm", name)
    return name


@pytest.fixture
def network(image: str, used: ExitStack) -> str:
    """A network of its own, in which containers find each other by name."""
    name = fresh_name()
    docker("network", "create", name)
    used.callback(docker, "network", "rm", name)
    return name


class Projects:
    """`new_project("compose.yaml")` returns a project that is not up yet."""

    def __init__(self, image: str) -> None:
        self._image = image
        self.made: list[Project] = []

    def __call__(self, file: str) -> Project:
        self.made.append(Project(self._image, file))
        return self.made[-1]


@pytest.fixture(scope="module")
def new_project(image: str) -> Iterator[Projects]:
    """Projects that are removed after the module."""
    projects = Projects(image)
    yield projects
    for project in projects.made:
        project.close()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Show the ends of the nodes' logs for a failure."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    projects = getattr(item, "funcargs", {}).get("new_project")
    if report.failed and isinstance(projects, Projects):
        for project in projects.made:
            report.sections.append((f"the nodes of {project.path.name}", project.tails()))
