"""The files of `make dist`: each is installed into a clean environment, and a node runs there and serves a client."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from compat_tests.packaged import KINDS, Environment, clean_environment, make_dist, run
from testkit.nodes.processes import READY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

@pytest.fixture(autouse=True)
def _only_pykbroker(against: str) -> None:
    if against == "apache-kafka":
        pytest.skip("the packages are pykbroker's")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of `make dist` by kind."""
    return make_dist(tmp_path_factory.mktemp("dist"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_runs_in_a_clean_environment(kind: str, dist: dict[str, Path], tmp_path: Path) -> None:
    home = tmp_path / "environment"
    environment = Environment(home)
    environment.install(dist[kind])
    program = "from pykbroker_wire.records import walk; print(walk.COMPILED, walk.__file__)"
    said = run([environment.python, "-c", program], tmp_path)
    compiled, place = said.split()
    assert Path(place).is_relative_to(home)
    # An installation from source compiles where there is a compiler, as there is here.
    assert compiled == str(kind != "pure")
    log = (tmp_path / "log").open("wb")
    node = subprocess.Popen(
        [home / "bin" / "pykbroker", "start", "--port", "0", "--ephemeral", "--until-stdin-ends"],
        cwd=tmp_path, env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
    )  # fmt: skip
    with log, node:
        assert node.stdout is not None
        ready = node.stdout.readline()
        assert ready.startswith(READY), (tmp_path / "log").read_text()
        assert written_and_read(ready.removeprefix(READY).strip()) == b"one"
        assert node.stdin is not None
        node.stdin.close()
        assert node.wait(60) == 0


def written_and_read(bootstrap: str) -> bytes | None:
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("orders", b"one")
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    return message.value()


def test_what_is_in_them(dist: dict[str, Path]) -> None:
    with tarfile.open(dist["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "wire/pykbroker_wire/records/_walk.c"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".egg-link"))]
    for kind in ("pure", "compiled"):
        with zipfile.ZipFile(dist[kind]) as wheel:
            found = wheel.namelist()
        packages = {name.partition("/")[0] for name in found if ".dist-info" not in name}
        assert packages == {"pykbroker", "pykbroker_wire", "pykbroker_log", "pykbroker_raft", "pykbroker_worlds"}
        assert any(name.endswith("licenses/LICENSE") for name in found)
        assert any(name.endswith(".so") for name in found) == (kind == "compiled")
