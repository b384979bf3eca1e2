"""A broker inside this process works as documented, and leaves the process as it was."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pykbroker
from pykbroker.config.kinds import ConfigError
from pykbroker.storage.format import StorageFormatError
from pykbroker_log.os_disk.disk import OsDisk
from pykbroker_log.os_disk.files import OsFile
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from testkit.nodes.wire import Wire, batch


def test_produce_and_fetch() -> None:
    with pykbroker.Broker() as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create("t", partitions=1)
        assert wire.produce("t", batch(b"one", b"two")).error_code == ErrorCode.NONE
        assert wire.values("t") == [b"one", b"two"]
        assert broker.bootstrap_servers == f"localhost:{broker.port}"
        metrics = broker.metrics()
        assert metrics["kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec"] == 2
        assert metrics["kafka.server:type=ReplicaManager,name=PartitionCount"] == 1


def test_async_with_does_not_block_the_loop() -> None:
    async def main() -> int:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        counting = asyncio.ensure_future(count())
        async with pykbroker.Broker() as broker:
            _, writer = await asyncio.open_connection("localhost", broker.port)
            writer.close()
        counting.cancel()
        return turns

    assert asyncio.run(main()) > 5


def test_configuration_is_laid_over_the_development_profile() -> None:
    with (
        pykbroker.Broker({"num.partitions": 3, "auto.create.topics.enable": True}) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        assert wire.try_create("t", -1, -1, {}).num_partitions == 3


def test_a_data_directory_is_kept(tmp_path: Path) -> None:
    for values in ([b"one"], [b"one", b"two"]):
        with pykbroker.Broker(data_dir=tmp_path / "data") as broker, Wire(broker.bootstrap_servers) as wire:
            if len(values) == 1:
                wire.create("t", partitions=1)
            assert wire.produce("t", batch(values[-1])).error_code == ErrorCode.NONE
            assert wire.values("t") == values
    assert (tmp_path / "data" / "meta.properties").exists()


def test_only_a_kept_directory_waits_for_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(name: str, usual: Any) -> Any:
        def call(*given: Any) -> Any:
            asked.append(name)
            return usual(*given)

        return call

    for name in ("fsync_dir", "fsync_dirs", "fsync_files", "fsyncs"):
        monkeypatch.setattr(OsDisk, name, noted(name, getattr(OsDisk, name)))
    monkeypatch.setattr(OsFile, "fsync", noted("fsync", OsFile.fsync))
    brokers = (
        pykbroker.Broker(),
        pykbroker.Broker(data_dir=tmp_path / "a"),
        pykbroker.Broker({"log.dirs": tmp_path / "b"}),
        pykbroker.Broker({"metadata.log.dir": tmp_path / "c"}),
    )
    found = []
    for one in brokers:
        asked.clear()
        with one as broker, Wire(broker.bootstrap_servers) as wire:
            wire.create("t", flush_messages=1)
            assert wire.produce("t", batch(b"a")).error_code == ErrorCode.NONE
        found.append({"fsync", "fsync_dir"} <= set(asked) if asked else None)
    assert found == [None, True, True, True]


def test_a_broker_may_be_started_again() -> None:
    broker = pykbroker.Broker()
    for _ in range(2):
        with broker, Wire(broker.bootstrap_servers) as wire:
            assert wire.metadata().topics == []
    broker.stop()


def test_two_brokers_in_one_process_are_two_clusters() -> None:
    with pykbroker.Broker() as one, pykbroker.Broker() as other, Wire(one.bootstrap_servers) as wire:
        wire.create("t", partitions=1)
        with Wire(other.bootstrap_servers) as elsewhere:
            assert elsewhere.metadata().topics == []


def test_temporary_data_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pykbroker.Broker():
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_what_keeps_it_from_starting_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        pykbroker.Broker({"num.partitions": "many"}).start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            OSError, match=f"listener PLAINTEXT cannot be bound to localhost:{port}: Address already in use"
        ):
            pykbroker.Broker(port=port).start()
    assert not list(tmp_path.iterdir())
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(StorageFormatError, match=r"No `meta\.properties` found"):
        pykbroker.Broker(data_dir=tmp_path / "full").start()


def test_the_next_port_may_be_taken() -> None:
    """The controller of a broker with a port of its own does not need the port after it."""
    with (
        taken_after_a_free_port() as port,
        pykbroker.Broker(port=port) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        assert broker.port == port
        assert wire.metadata().topics == []


@contextmanager
def taken_after_a_free_port() -> Iterator[int]:
    """A port that is free, while another program listens on the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except (OSError, OverflowError):
                continue
            second.listen()
            first.close()
            yield port
            return


def test_two_brokers_cannot_share_a_directory(tmp_path: Path) -> None:
    with pykbroker.Broker(data_dir=tmp_path), pytest.raises(StorageFormatError, match="cannot be used"):
        pykbroker.Broker(data_dir=tmp_path).start()


def test_a_node_that_gives_up_is_a_failure_of_the_block() -> None:
    def use(broker: pykbroker.Broker) -> None:
        with broker:
            run, node = broker._run, broker._node
            assert run is not None
            node.runtime.loop.call_soon_threadsafe(node._fail, OSError("the disk is gone"))
            run._thread.join(10)

    with pytest.raises(RuntimeError, match="stopped by itself: the disk is gone"):
        use(pykbroker.Broker())


def test_not_running() -> None:
    broker = pykbroker.Broker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers
    with pytest.raises(RuntimeError, match="not running"):
        broker.metrics()
    with broker, pytest.raises(RuntimeError, match="running already"):
        broker.start()


def state_of_the_process() -> dict[str, Any]:
    root = logging.getLogger()
    return {
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "signals": [
            signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
        ],
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "policy": asyncio.get_event_loop_policy(),
        "logging": (
            root.level,
            list(root.handlers),
            logging.getLogger("pykbroker").level,
            logging.getLogger("pykbroker").handlers,
        ),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }


def test_the_host_process_stays_as_it_was() -> None:
    before = state_of_the_process()
    with pykbroker.Broker():
        during = state_of_the_process()
        assert {**during, "threads": None} == {**before, "threads": None}
    assert state_of_the_process() == before


def levels(broker: pykbroker.Broker) -> dict[str, int]:
    """Return the finalized level of each feature."""
    with Wire(broker.bootstrap_servers) as wire:
        answer = wire.call(ApiVersionsRequest(client_software_name="t", client_software_version="1"))
    return {one.name: one.max_version_level for one in answer.finalized_features}


def test_a_new_broker_begins_at_the_levels_of_a_release(tmp_path: Path) -> None:
    with pykbroker.Broker(release="4.3") as broker:
        default = levels(broker)
        assert (default["metadata.version"], default["share.version"]) == (30, 1)
    with pykbroker.Broker(data_dir=tmp_path) as broker:
        assert levels(broker) == default, "a directory that stays begins as with `pykbroker start`"
    with pykbroker.Broker(data_dir=tmp_path, release="4.4") as broker:
        assert levels(broker) == default, "a directory that is in use keeps its levels"
    with pykbroker.Broker() as broker:
        newest = levels(broker)
        assert (newest["metadata.version"], newest["share.version"]) == (33, 2)
    with pykbroker.Broker(release="4.0") as broker:
        assert "share.version" not in levels(broker)


def test_an_unknown_release_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"9\.9"):
        pykbroker.Broker(release="9.9")
