"""Directories of earlier releases and of Apache Kafka are fixtures: this release starts on each of them and serves its
content. directories.py makes them; tests/golden/data_directories/README.md lists their sources."""

from __future__ import annotations

import json
import tarfile

import pytest

from compat_tests.on_disk.directories import GOLDEN, KEEPING, LOG_DIR
from compat_tests.on_disk.dumps import verified
from compat_tests.on_disk.estate import inventory, manifest
from compat_tests.on_disk.home import Home
from compat_tests.on_disk.life import Life
from compat_tests.python.confluent_client import ConfluentClient
from testkit.clients import NOW_MS, Record

ARCHIVES = sorted(path.name.removesuffix(".tar.xz") for path in GOLDEN.glob("*.tar.xz"))


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHIVES)
def test_this_release_serves_it(name: str) -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    with Home(KEEPING, log_dirs=(LOG_DIR,)) as home:
        with tarfile.open(GOLDEN / f"{name}.tar.xz") as archive:
            archive.extractall(home.path, filter="data")
        home.start("pykbroker")

        def served() -> dict[str, object]:
            names = {"groups": expected["groups"], "transactional_ids": list(expected["transactions"])}
            found = manifest(inventory(home.bootstrap, **names), compacted=Life.compacted())
            for where, part in found["partitions"].items():
                # A start may begin a leader epoch.
                part["epochs"] = part["epochs"][: len(expected["partitions"][where]["epochs"])]
            return json.loads(json.dumps(found))  # type: ignore[no-any-return]

        assert served() == expected
        client = ConfluentClient()
        placed = client.produce(home.bootstrap, "zstd", [Record(b"k", b"new", (), NOW_MS)], compression="zstd")
        assert placed == [(0, expected["partitions"]["zstd-0"]["end"])]
        assert client.consume(home.bootstrap, "zstd")[-1].value is not None
        home.stop()
        assert verified(home.log_dirs) == ""


def test_there_are_some() -> None:
    assert len(ARCHIVES) >= 6
