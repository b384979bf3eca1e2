"""Nodes that do not belong to the cluster: each is refused with a log line that has the reason, and changes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.records.batch import iter_batches
from testkit.nodes.nodes import PATIENCE_SECONDS, eventually
from testkit.nodes.processes import Process, run, run_here, write_properties
from testkit.nodes.trio import CLUSTER_ID, NUMBERS, Trio
from testkit.nodes.wire import Wire, batch
from testkit.ports import steady_port

pytestmark = pytest.mark.slow

ANOTHER_CLUSTER = "AnotherClusterAnother0"
SETTINGS = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    # The metadata log has no new records while nothing happens.
    "metadata.max.idle.interval.ms": 0,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
}
#: For a node that must be refused. A node that must serve needs the default, because an election can take this long.
IMPATIENT = {"initial.broker.registration.timeout.ms": 2_000}
COMBINED, BROKER = "broker,controller", "broker"


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    with Trio(tmp_path_factory.mktemp("trio"), "dynamic", SETTINGS) as found:
        found.serving(*NUMBERS)
        topic = found.create("kept", NUMBERS)
        with Wire(found.address(found.leaders(topic)[0])) as wire:
            assert wire.produce(topic, batch(b"kept")).error_code == ErrorCode.NONE
        yield found
        assert not found.complaints()


class Intruder:
    """A node with its own ports that gets the cluster's controllers."""

    def __init__(
        self,
        trio: Trio,
        folder: Path,
        node_id: int,
        roles: str = COMBINED,
        settings: Mapping[str, int] = IMPATIENT,
    ) -> None:
        self.node_id = node_id
        port = steady_port()
        listeners = [f"PLAINTEXT://127.0.0.1:{port}"]
        if roles == COMBINED:
            listeners.append(f"CONTROLLER://127.0.0.1:{port + 1}")
        self.data = folder / "intruder"
        self.log = folder / "intruder.log"
        self.properties = write_properties(
            folder / "intruder.properties",
            {
                "process.roles": roles,
                "node.id": node_id,
                "listeners": ",".join(listeners),
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": ",".join(
                    f"127.0.0.1:{port}" for port in trio.controller_ports.values()
                ),
                "log.dirs": self.data,
                **SETTINGS,
                **settings,
            },
        )

    def format(self, cluster_id: str = CLUSTER_ID) -> None:
        done = run_here("format", str(self.properties), "--cluster-id", cluster_id, "--no-initial-controllers")
        assert done.returncode == 0, done.stderr

    def copies(self, data: Path, changes: Mapping[str, str]) -> None:
        """Its directory is the copy of another's, with other lines in meta.properties."""
        shutil.copytree(data, self.data)
        meta = self.data / "meta.properties"
        text = meta.read_text()
        for old, new in changes.items():
            assert old in text
            text = text.replace(old, new)
        meta.write_text(text)

    def is_refused(self, *said: str) -> None:
        """It ends by itself, and its last words have the reason; no line is a traceback."""
        with Process(self.log, str(self.properties)) as process:
            assert process.wait(PATIENCE_SECONDS) == 1
        lines = self.log.read_text().splitlines()
        assert not [line for line in lines if "Traceback" in line]
        ends = [line for line in lines if "Stopping" in line or "unable to register" in line]
        assert ends, lines[-3:]
        for words in said:
            assert [line for line in lines if words in line], lines[-5:]


@contextmanager
def unchanged(trio: Trio, *, more_batches: int = 0) -> Iterator[None]:
    """Check that the metadata log of every node holds the same bytes afterwards, and so does the topic; every broker
    serves. `more_batches`: the batches that the log may have gained."""

    def held() -> dict[int, bytes]:
        return {
            number: b"".join(
                path.read_bytes() for path in sorted((trio.data(number) / "__cluster_metadata-0").glob("*.log"))
            )
            for number in NUMBERS
        }

    trio.in_sync("kept")
    eventually("every node has all metadata", lambda: len(set(held().values())) == 1)
    before, voters, records = held(), trio.voters(), trio.same_logs("kept")
    yield
    eventually("every node has all metadata", lambda: len(set(held().values())) == 1)
    after = held()
    assert after[1].rstrip(b"\0").startswith(before[1].rstrip(b"\0"))
    assert batches_of(after[1]) - batches_of(before[1]) <= more_batches
    assert trio.voters() == voters
    trio.in_sync("kept")
    assert trio.same_logs("kept") == records


def batches_of(log: bytes) -> int:
    return sum(1 for _ in iter_batches(log))


def follower(trio: Trio) -> int:
    active = trio.active()
    return next(number for number in NUMBERS if number != active)


@pytest.mark.parametrize("roles", [COMBINED, BROKER])
def test_a_node_of_another_cluster(trio: Trio, tmp_path: Path, roles: str) -> None:
    intruder = Intruder(trio, tmp_path, 4, roles)
    intruder.format(ANOTHER_CLUSTER)
    with unchanged(trio):
        intruder.is_refused("refuses Fetch with INCONSISTENT_CLUSTER_ID: it belongs to another cluster")
    said = [line for line in intruder.log.read_text().splitlines() if "INCONSISTENT_CLUSTER_ID" in line]
    # One line for each controller, however often it is asked.
    assert 1 <= len(said) <= len(NUMBERS)
    assert not list((intruder.data / "__cluster_metadata-0").glob("*.checkpoint"))
    assert all(not path.stat().st_size for path in (intruder.data / "__cluster_metadata-0").glob("*.log"))


@pytest.mark.parametrize("roles", [COMBINED, BROKER])
def test_a_node_id_that_is_taken(trio: Trio, tmp_path: Path, roles: str) -> None:
    intruder = Intruder(trio, tmp_path, follower(trio), roles)
    intruder.format()
    words = "two nodes have the same node.id"
    before = trio.running[intruder.node_id].tail(1000).count(words)
    # Its controller registers once; the other controller notices it and logs a line.
    with unchanged(trio, more_batches=1 if roles == COMBINED else 0):
        intruder.is_refused("DUPLICATE_BROKER_REGISTRATION (a broker with this node.id is alive")
    said = trio.running[intruder.node_id].tail(1000).count(words) - before
    assert said == (1 if roles == COMBINED else 0)


def test_a_copied_directory(trio: Trio, tmp_path: Path) -> None:
    """Its directory.id exists twice, whether the node id is changed as well or not."""
    number = follower(trio)
    for node_id, said in (
        (4, "INVALID_REGISTRATION (another broker has registered a directory with the directory.id"),
        (number, "DUPLICATE_BROKER_REGISTRATION"),
    ):
        intruder = Intruder(trio, tmp_path, node_id, BROKER)
        with unchanged(trio):
            intruder.copies(trio.data(number), {f"node.id={number}": f"node.id={node_id}"})
            intruder.is_refused(said)
        shutil.rmtree(intruder.data)


def test_a_node_id_that_another_took_while_its_owner_was_down(trio: Trio, tmp_path: Path) -> None:
    """As in Apache Kafka, an id belongs to the process whose session is valid; the other one is refused."""
    number = follower(trio)
    intruder = Intruder(trio, tmp_path, number, BROKER, settings={})
    intruder.format()
    voters, records = trio.voters(), trio.same_logs("kept")
    assert trio.stop(number) == 0
    properties = trio.files[number]
    kept = properties.read_text()
    with Process(intruder.log, str(intruder.properties)).ready(PATIENCE_SECONDS) as process:
        # It has the id, and none of the records: a new disk of the same broker, which fetches them.
        properties.write_text(kept + "".join(f"{key}={value}\n" for key, value in IMPATIENT.items()))
        trio.start(number)
        assert trio.running.pop(number).wait(PATIENCE_SECONDS) == 1
        properties.write_text(kept)
        assert "DUPLICATE_BROKER_REGISTRATION" in (trio.folder / f"{number}.log").read_text()
        assert process.interrupt() == 0
    said = trio.folder / f"{number}.log"
    said.write_text(said.read_text().replace(" ERROR ", " expected "))
    trio.start(number).ready(PATIENCE_SECONDS)
    trio.in_sync("kept")
    assert trio.same_logs("kept") == records
    assert trio.voters() == voters


def test_voters_that_disagree(tmp_path: Path) -> None:
    """With one voter less every majority still has a common member, and a log line reports it. With two less the node
    could elect itself, so it does not start."""
    with Trio(tmp_path, "static", SETTINGS) as trio:
        trio.serving(*NUMBERS)
        number = follower(trio)
        assert trio.stop(number) == 0
        folder, properties = trio.data(number) / "__cluster_metadata-0", trio.files[number]
        kept = properties.read_text()
        (line,) = [line for line in kept.splitlines() if line.startswith("controller.quorum.voters=")]
        voters = line.partition("=")[2].split(",")

        def name(*numbers: int) -> None:
            named = [voter for voter in voters if int(voter.partition("@")[0]) in numbers]
            properties.write_text(kept.replace(line, f"controller.quorum.voters={','.join(named)}"))

        name(number)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        refused = run("start", str(properties))
        assert refused.returncode == 1
        assert f"controller.quorum.voters names [{number}], and the newest leader" in refused.stderr
        assert "elected by [1, 2, 3]" in refused.stderr
        assert "Traceback" not in refused.stderr
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        name(number, trio.active())
        trio.start(number).ready(PATIENCE_SECONDS)
        trio.serving(*NUMBERS)
        said = [each for each in trio.running[number].tail(1000).splitlines() if "controller.quorum.voters of" in each]
        assert len(said) == 1
        assert "elected by the voters 1, 2, 3" in said[0]
        trio.stop(number)
        name(*NUMBERS)
        trio.start(number).ready(PATIENCE_SECONDS)
        trio.serving(*NUMBERS)
        assert trio.running[number].tail(1000).count("controller.quorum.voters of") == 1
        assert not trio.complaints()
