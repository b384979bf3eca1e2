"""The files of `make dist`: each is installed into a clean environment, and a node runs there and serves a client."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from testkit import needs
from testkit.nodes.processes import READY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

KINDS = {"sdist": "pykbroker-*.tar.gz", "pure": "pykbroker-*-py3-none-any.whl", "compiled": "pykbroker-*-cp*-abi3-*.whl"}


@pytest.fixture(autouse=True)
def _only_pykbroker(against: str) -> None:
    if against == "apache-kafka":
        pytest.skip("the packages are pykbroker's")


def environment() -> dict[str, str]:
    """Return this process's environment without what leads to the repository."""
    apart = ("PYTHONPATH", "PYKBROKER_PURE", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in apart}


def run(command: Sequence[str | Path], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def uv(words: Sequence[str | Path], folder: Path) -> None:
    """Run uv with what is in its cache, and ask the index where that is not enough."""
    needs.python_package("uv")
    command = [sys.executable, "-m", "uv", *words]
    offline = subprocess.run([*command, "--offline"], cwd=folder, env=environment(), capture_output=True, timeout=300)
    if offline.returncode:
        run(command, folder)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run `make dist` into a folder of its own."""
    needs.python_package("uv")
    folder = tmp_path_factory.mktemp("dist")
    bin_folder = Path(sys.executable).parent
    run(["make", "-C", needs.ROOT, "-o", f"{bin_folder.parent}/.install", "dist", f"DIST={folder}", f"BIN={bin_folder}",
         f"VENV={bin_folder.parent}"], folder)  # fmt: skip
    return folder


def file_of(dist: Path, kind: str) -> Path:
    (file,) = dist.glob(KINDS[kind])
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_runs_in_a_clean_environment(kind: str, dist: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", home], tmp_path)
    python = home / "bin" / "python"
    uv(["pip", "install", "-q", "--python", python, file_of(dist, kind)], tmp_path)
    said = run([python, "-c", "from pykbroker_wire.records import walk; print(walk.COMPILED, walk.__file__)"], tmp_path)
    compiled, place = said.split()
    assert Path(place).is_relative_to(home)
    # An installation from source compiles where there is a compiler, as there is here.
    assert compiled == str(kind != "pure")
    log = (tmp_path / "log").open("wb")
    node = subprocess.Popen(
        [home / "bin" / "pykbroker", "start", "--port", "0", "--ephemeral", "--until-stdin-ends"],
        cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
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


def test_what_is_in_them(dist: Path) -> None:
    with tarfile.open(file_of(dist, "sdist")) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "wire/pykbroker_wire/records/_walk.c"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc", ".egg-link"))]
    for kind in ("pure", "compiled"):
        with zipfile.ZipFile(file_of(dist, kind)) as wheel:
            found = wheel.namelist()
        packages = {name.partition("/")[0] for name in found if ".dist-info" not in name}
        assert packages == {"pykbroker", "pykbroker_wire", "pykbroker_log", "pykbroker_raft"}
        assert any(name.endswith("licenses/LICENSE") for name in found)
        assert any(name.endswith(".so") for name in found) == (kind == "compiled")
