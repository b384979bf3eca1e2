"""A cluster leaves its process as it was: no thread, no file, no socket, no warning."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from pykbroker.testing import Cluster
from pykbroker.testing.killable import PlainLoop
from pykbroker_wire.errors import ErrorCode
from tests.node.wire import Wire, batch
from tests.testing.test_cluster import create, holds, leader_of
from tests.testing.test_embedded import state_of_the_process

pytestmark = pytest.mark.slow


def descriptors() -> dict[str, int]:
    """What this process has open, by kind."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            kind = os.readlink(f"/proc/self/fd/{name}").partition(":")[0]
        except FileNotFoundError:
            continue
        found[kind] = found.get(kind, 0) + 1
    return found


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="/proc says what is open")
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_nothing_is_left_of_a_killed_node(
    loop: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Neither a thread, nor a file, nor a socket; and none of them waits for the garbage collector."""
    if loop == "asyncio":
        monkeypatch.setattr("pykbroker.testing.node_thread.killable_loop", PlainLoop)
    with Cluster(nodes=1):
        pass  # the first loop of a process opens what every other uses
    forget_earlier_tests(recwarn)
    gc.disable()
    try:
        threads, before = sorted(thread.name for thread in threading.enumerate()), descriptors()
        with Cluster() as cluster:
            topic = create(cluster, "t")
            with Wire(cluster.address(leader_of(cluster, topic))) as wire:
                assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE
            assert descriptors() != before
            cluster.pause(2)
            cluster.kill()
            assert sorted(thread.name for thread in threading.enumerate()) == threads
            reserved = 2 * len(cluster.nodes)
            assert descriptors() == {**before, "socket": before.get("socket", 0) + reserved}
            cluster.start()
            holds(cluster, topic, [b"kept"])
    finally:
        gc.enable()
    assert descriptors() == before
    gc.collect()
    assert not unclosed(recwarn)


def forget_earlier_tests(warnings: pytest.WarningsRecorder) -> None:
    """What they have left open, the clients among them, is collected now and counts no longer."""
    gc.collect()
    warnings.clear()


def unclosed(warnings: pytest.WarningsRecorder) -> list[str]:
    """What the garbage collector found still open."""
    texts = [str(warning.message) for warning in warnings]
    return [text for text in texts if "unclosed" in text or "never awaited" in text]


def test_the_host_process_stays_as_it_was(recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture) -> None:
    forget_earlier_tests(recwarn)
    before, open_before = state_of_the_process(), descriptors()
    with Cluster() as cluster:
        create(cluster, "t")
        cluster.kill(1)
        cluster.pause(2)
        during = state_of_the_process()
        assert {**during, "threads": None} == {**before, "threads": None}
        with pytest.raises(RuntimeError, match="node 2 is paused"):
            cluster.stop()
    gc.collect()
    assert state_of_the_process()["threads"] == before["threads"]
    assert sum(descriptors().values()) <= sum(open_before.values()) + 3
    assert not unclosed(recwarn)
    assert not [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")]
    with pytest.raises(RuntimeError, match="not running"):
        cluster.data_dir(1)
