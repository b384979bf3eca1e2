"""Three nodes as processes, and the responses that clients get while the broker loop of a leader stands still, and
later."""

from __future__ import annotations

import re
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from pykbroker_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from testkit.nodes.load import Load
from testkit.nodes.nodes import TRANSACTION, eventually
from testkit.nodes.processes import Process, format_combined, run
from testkit.nodes.trio import NUMBERS, REPLICATED, Trio
from testkit.nodes.wire import Wire, batch
from tests.node.loops import standing_authorizer
from tests.node.loops.standing_authorizer import HOLD, STAND

pytestmark = pytest.mark.slow

SESSION_S = 9
#: Longer than any of these waits.
PATIENT_S = 120
#: Sessions are as long as by default: a stall of 5 s is shorter, and one of 12 s is longer.
SETTINGS = {
    **REPLICATED,
    **standing_authorizer.PROPERTY,
    "broker.session.timeout.ms": 1_000 * SESSION_S,
    "broker.heartbeat.interval.ms": 2_000,
    "auto.create.topics.enable": "false",
}


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Trio]:
    with Trio(tmp_path, "dynamic", SETTINGS) as found:
        found.serving(*NUMBERS)
        yield found
        assert not found.complaints()


@contextmanager
def asked(trio: Trio, number: int, name: str) -> Iterator[None]:
    """Ask a node for the metadata of a topic that makes it stand still; it has answered when the block ends."""
    with Wire(trio.address(number), timeout=PATIENT_S) as wire:
        thread = threading.Thread(target=wire.metadata, args=(name,))
        thread.start()
        yield
        thread.join(PATIENT_S)
        assert not thread.is_alive()


class LeaderOnly:
    """Writes with acks=1 to one node, leader or not, and records the acknowledged values and their times."""

    def __init__(self, trio: Trio, number: int, topic: str) -> None:
        self._trio, self._number, self._topic = trio, number, topic
        self.acknowledged: dict[bytes, float] = {}
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        self._thread.join(PATIENT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with Wire(self._trio.address(self._number), timeout=PATIENT_S) as wire:
            count = 0
            while not self._ends.is_set():
                count += 1
                value = b"%d of node %d" % (count, self._number)
                if wire.produce_once(self._topic, batch(value), acks=1).error_code == ErrorCode.NONE:
                    self.acknowledged[value] = time.monotonic()
                self._ends.wait(0.01)


def id_of(trio: Trio, number: int, topic: str) -> bytes:
    with Wire(trio.address(number)) as wire:
        return bytes(wire.metadata(topic).topics[0].topic_id)


def quorum_epoch(trio: Trio, number: int) -> int:
    with Wire(trio.address(number)) as wire:
        return int(wire.quorum().topics[0].partitions[0].leader_epoch)


@pytest.mark.parametrize(
    "seconds",
    [
        5,
        pytest.param(12, marks=pytest.mark.long(amount="a broker loop that stands still for 12 s")),
        pytest.param(30, marks=pytest.mark.long(amount="a broker loop that stands still for 30 s")),
    ],
)
def test_a_leader_that_stands_still_loses_nothing_and_its_node_stays_active_controller(
    trio: Trio, seconds: int
) -> None:
    """It leads with acks=1, acks=all and transactions, and one of its topics is deleted and created again in that
    time."""
    active = trio.active()
    other = next(number for number in NUMBERS if number != active)
    replicas = (active, *(number for number in NUMBERS if number != active))
    topics = [trio.create(name, replicas) for name in ("all", "transacted", "one", "again")]
    old_id, epoch = id_of(trio, other, "again"), quorum_epoch(trio, other)
    load = Load(trio, ["all"])
    load.transact(trio.keys_by_coordinator(TRANSACTION)[active], "transacted")
    with load, Wire(trio.address(active), timeout=PATIENT_S) as late:
        writers = [LeaderOnly(trio, number, "one") for number in NUMBERS]
        load.goes_on()
        assert late.produce_once("again", batch(b"old")).error_code == ErrorCode.NONE
        with asked(trio, active, f"{STAND}-{seconds}"):
            # Records from before are not judged with acks=1, because only the leader may have them.
            time.sleep(1)
            began = time.monotonic()
            told: list[int] = []
            waits = threading.Thread(
                target=lambda: told.append(late.produce_once(old_id, batch(b"late"), version=13).error_code)
            )
            waits.start()
            with Wire(trio.address(other)) as wire:
                deleting = DeleteTopicsRequest(topics=[DeleteTopicState(name="again")], timeout_ms=9_000)
                (gone,) = wire.call(deleting).responses
                assert gone.error_code == ErrorCode.NONE, gone
                assert wire.try_create("again", 1, 3, {}).error_code == ErrorCode.NONE
            assert not told
        waits.join(PATIENT_S)
        assert told == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert (trio.active(), quorum_epoch(trio, other)) == (active, epoch)
        assert bool(trio.lines("The broker loop has not turned for")) == (seconds > SESSION_S)
        trio.in_sync(*topics)
        load.goes_on()
        for writer in writers:
            writer.end()
        with Wire(trio.address(trio.leaders("again")[0])) as wire:
            assert wire.produce("again", batch(b"new")).error_code == ErrorCode.NONE
            assert wire.values("again") == [b"new"]
    load.judge()
    with Wire(trio.address(trio.leaders("one")[0])) as wire:
        kept = wire.values("one")
    assert len(kept) == len(set(kept))
    after = {value for writer in writers for value, at in writer.acknowledged.items() if at > began}
    assert after
    assert after <= set(kept)
    for topic in topics:
        trio.same_logs(topic)


def test_a_call_that_keeps_the_interpreters_lock_costs_no_session(trio: Trio) -> None:
    """It stops both loops of the active controller for less than a session: there may be an election, and no more."""
    active = trio.active()
    topic = trio.create("t", (active, *(number for number in NUMBERS if number != active)))
    with Load(trio, [topic]) as load:
        load.goes_on()
        with asked(trio, active, f"{HOLD}-5"):
            pass
        load.goes_on()
        trio.in_sync(topic)
    load.judge()
    assert not trio.lines("Fencing broker")
    assert len(trio.lines("Successfully registered broker")) == len(NUMBERS)


def test_a_node_whose_loop_stands_tells_of_it_and_does_not_wait_for_it_when_it_stops(tmp_path: Path) -> None:
    """Parts can no longer be closed in order. Written records are there at the next start, as after `kill -9`."""
    log, health = tmp_path / "log", tmp_path / "health"
    own = {
        **standing_authorizer.PROPERTY,
        "log.dirs": tmp_path / "data",
        "broker.session.timeout.ms": 1_000,
        "pykbroker.metrics.listener": "127.0.0.1:0",
        "pykbroker.health.socket": health,
    }
    properties = str(format_combined(tmp_path, own))
    with Process(log, properties) as process:
        process.ready()
        with Wire(process.address) as wire:
            wire.create("t")
            assert wire.produce("t", batch(b"kept")).error_code == ErrorCode.NONE
            wire.send(MetadataRequest(topics=[MetadataRequestTopic(name=f"{STAND}-{PATIENT_S}")]))
            eventually("the loop stands still", lambda: "The broker loop has not turned for" in log.read_text())
            words = "the broker loop has not turned for"
            eventually("the health socket says so", lambda: words in run("health", "--socket", str(health)).stdout)
            found = re.search(r"Metrics for Prometheus are at (http://\S+)", log.read_text())
            assert found is not None
            with urllib.request.urlopen(found[1], timeout=60) as answer:
                assert b"activebrokercount" in answer.read()
            assert process.interrupt(signal.SIGTERM) == 1
    said = log.read_text()
    assert "this process ends without a shutdown" in said
    assert "standing_authorizer.py" in said
    with Process(log, properties) as process:
        process.ready()
        with Wire(process.address) as wire:
            assert wire.values("t") == [b"kept"]
        assert process.interrupt(signal.SIGTERM) == 0


@pytest.mark.long(amount="a process that is stopped for 20 s")
def test_a_process_that_stood_still_as_a_whole_makes_no_pause_of_its_own(trio: Trio) -> None:
    """Its session ends in that time. When the process continues, its broker loop counts no stall, and it sends
    heartbeats at once."""
    active = trio.active()
    stopped, other = (number for number in NUMBERS if number != active)
    topic = trio.create("t", (stopped, active, other))
    with Load(trio, [topic]) as load:
        load.goes_on()
        with trio.paused(stopped):
            time.sleep(20)
            assert trio.partitions(topic, other)[0].leader_id in (active, other)
        trio.in_sync(topic)
        load.goes_on()
    load.judge()
    assert trio.lines(f"Fencing broker {stopped} ")
    assert not trio.lines("The broker loop has not turned for")
    assert len(trio.lines("Successfully registered broker")) == len(NUMBERS)
