"""Watches a cluster in a process of its own: `python -m tests.testing.leaves_nothing WATCH [LOOP]`.

In the process of a test run, brokers and clients of other tests open and close files and sockets at the same time.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pykbroker.testing import Cluster
from pykbroker.testing.killable import PlainLoop
from pykbroker_wire.errors import ErrorCode
from testkit.nodes.wire import Wire, batch
from tests.testing.test_cluster import create, holds, leader_of
from tests.testing.test_embedded import state_of_the_process


def descriptors() -> dict[str, int]:
    """Return the number of open descriptors of this process, by kind."""
    found: dict[str, int] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            kind = os.readlink(f"/proc/self/fd/{name}").partition(":")[0]
        except FileNotFoundError:
            continue
        found[kind] = found.get(kind, 0) + 1
    return found


@contextmanager
def nothing_unclosed() -> Iterator[None]:
    """Fail if the garbage collector finds something still open at the end."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
        gc.collect()
    texts = [str(warning.message) for warning in caught]
    assert not [text for text in texts if "unclosed" in text or "never awaited" in text], texts


def a_killed_node(loop: str) -> None:
    """Neither a thread, nor a file, nor a socket is left, and none of them waits for the garbage collector."""
    if loop == "asyncio":
        pytest.MonkeyPatch().setattr("pykbroker.testing.node_thread.killable_loop", PlainLoop)
    with Cluster(nodes=1):
        pass  # the first loop of a process opens descriptors that all others use
    with nothing_unclosed():
        gc.disable()
        threads, before = sorted(thread.name for thread in threading.enumerate()), descriptors()
        with Cluster() as cluster:
            topic = create(cluster, "t")
            with Wire(cluster.address(leader_of(cluster, topic))) as wire:
                assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE
            assert descriptors() != before
            cluster.pause(2)
            cluster.kill()
            left, found = sorted(thread.name for thread in threading.enumerate()), descriptors()
            assert left == threads, left
            reserved = 2 * len(cluster.nodes)
            assert found == {**before, "socket": before.get("socket", 0) + reserved}, (found, before)
            cluster.start()
            holds(cluster, topic, [b"kept"])
        found = descriptors()
        assert found == before, (found, before)


def the_host_process() -> None:
    """It stays as it was, and gets no error in its log."""
    heard = Heard(logging.ERROR)
    logging.getLogger("pykbroker").addHandler(heard)
    with nothing_unclosed():
        before, open_before = state_of_the_process(), descriptors()
        with Cluster() as cluster:
            create(cluster, "t")
            cluster.kill(1)
            cluster.pause(2)
            during = state_of_the_process()
            assert {**during, "threads": None} == {**before, "threads": None}, (during, before)
            with pytest.raises(RuntimeError, match="node 2 is paused"):
                cluster.stop(*cluster.nodes)
        gc.collect()
        assert state_of_the_process()["threads"] == before["threads"]
        assert sum(descriptors().values()) <= sum(open_before.values()) + 3
    assert not heard.messages, heard.messages
    with pytest.raises(RuntimeError, match="not running"):
        cluster.data_dir(1)


class Heard(logging.Handler):
    """Keeps the logged messages."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["a_killed_node", loop]:
            a_killed_node(loop)
        case ["the_host_process"]:
            the_host_process()
        case _:
            sys.exit(__doc__)
