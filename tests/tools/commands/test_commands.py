"""The command line as a user runs it: processes, exit codes, the address line, and the errors of refused options."""

from __future__ import annotations

import re
import signal
import socket
import time
from pathlib import Path

import pytest

from pykbroker import __version__
from pykbroker.entry.options import read
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.api_versions import ApiVersionsRequest
from pykbroker_wire.primitives import uuid_from_str
from testkit.acting import acts
from testkit.nodes.processes import Process, run, run_here, write_properties
from testkit.nodes.wire import Wire, batch
from testkit.ports import steady_port

pytestmark = pytest.mark.slow


def properties(folder: Path, **more: object) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
        "advertised.listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:1",
        "offsets.topic.replication.factor": 1,
        "log.dirs": folder / "data",
        **{key.replace("_", "."): value for key, value in more.items()},
    }


def test_version_and_uuid() -> None:
    assert run("version").stdout == f"{__version__}\n"
    done = run("random-uuid")
    assert done.returncode == 0
    assert len(uuid_from_str(done.stdout.strip())) == 16


def test_no_argument_is_needed(tmp_path: Path) -> None:
    """Except the port, so that two runs of the tests do not collide."""
    with Process(tmp_path / "log", "--port", "0", env={"XDG_DATA_HOME": str(tmp_path / "home")}) as process:
        process.ready()
        with Wire(process.address) as wire:
            wire.create("t", partitions=1)
            assert wire.produce("t", batch(b"one")).error_code == ErrorCode.NONE
        assert process.interrupt(signal.SIGINT) == 0
        # One line on stdout, everything else in the log.
        assert process.lines == [f"pykbroker is ready: {process.address}"]
        log = process.log.read_text()
        assert "[KafkaRaftServer nodeId=1] Kafka Server started" in log
        assert "The controller has asked us to exit controlled shutdown." in log
        assert "[KafkaRaftServer nodeId=1] shut down completed" in log
        assert "Traceback" not in log
    assert (tmp_path / "home" / "pykbroker" / ".kafka_cleanshutdown").exists()


def test_ephemeral_leaves_nothing(tmp_path: Path) -> None:
    with Process(tmp_path / "log", "--ephemeral", "--port", "0", env={"TMPDIR": str(tmp_path)}) as process:
        process.ready()
        assert len(list(tmp_path.iterdir())) == 2
        assert process.interrupt(signal.SIGTERM) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_a_restart_keeps_topics_data_and_committed_offsets(tmp_path: Path) -> None:
    from kafka import KafkaConsumer
    from kafka.structs import OffsetAndMetadata, TopicPartition

    partition = TopicPartition("t", 0)
    arguments = ("--data-dir", str(tmp_path / "data"), "--port", "0")
    with Process(tmp_path / "log", *arguments) as process:
        process.ready()
        with Wire(process.address) as wire:
            wire.create("t", partitions=2, retention_ms=-1)
            assert wire.produce("t", batch(b"one", b"two")).error_code == ErrorCode.NONE
        consumer = KafkaConsumer(bootstrap_servers=process.address, group_id="g", enable_auto_commit=False)
        consumer.commit({partition: OffsetAndMetadata(1, "note", -1)})
        consumer.close()
        assert process.interrupt() == 0
    for _ in range(2):
        with Process(tmp_path / "log", *arguments) as process:
            process.ready()
            with Wire(process.address) as wire:
                assert wire.values("t") == [b"one", b"two"]
                assert wire.describe(2, "t")["retention.ms"].value == "-1"
            consumer = KafkaConsumer(bootstrap_servers=process.address, group_id="g", enable_auto_commit=False)
            assert consumer.committed(partition) == 1
            consumer.close()
            # The second run follows a crash, and acknowledged records were written.
            process.kill()


def test_killed_while_it_is_written_to(tmp_path: Path) -> None:
    arguments = ("--data-dir", str(tmp_path / "data"), "--port", "0")
    acknowledged: list[bytes] = []
    for round_number in range(2):
        with Process(tmp_path / "log", *arguments) as process:
            process.ready()
            with Wire(process.address) as wire:
                if not round_number:
                    wire.create("t", partitions=1)
                assert wire.values("t")[: len(acknowledged)] == acknowledged
                for number in range(200):
                    value = b"%d-%d" % (round_number, number)
                    assert wire.produce("t", batch(value)).error_code == ErrorCode.NONE
                    acknowledged.append(value)
                process.kill()
    with Process(tmp_path / "log", *arguments) as process:
        process.ready()
        with Wire(process.address) as wire:
            assert wire.values("t") == acknowledged
        assert re.search(r"Partition t-0: .*; the log ends at offset 400", process.log.read_text())


@acts(broker=("process.roles", "node.id", "log.dirs"))
def test_a_properties_file_formats_nothing_by_itself(tmp_path: Path) -> None:
    file = str(write_properties(tmp_path / "server.properties", properties(tmp_path)))
    refused = run("start", file)
    assert refused.returncode == 1
    assert f"No `meta.properties` found in {tmp_path / 'data'} (have you run `pykbroker format`" in refused.stderr
    assert not (tmp_path / "data").exists()
    cluster_id = run("random-uuid").stdout.strip()
    formatted = run("format", file, "--cluster-id", cluster_id)
    assert (formatted.returncode, formatted.stdout) == (
        0,
        f"Formatting {tmp_path / 'data'} with metadata.version 4.3-IV0.\n",
    )
    again = run("format", file, "--cluster-id", cluster_id)
    assert again.returncode == 1
    assert "is already formatted" in again.stderr
    assert run("format", file, "--cluster-id", cluster_id, "--ignore-formatted").returncode == 0
    with Process(tmp_path / "log", file) as process, Wire(process.ready().address) as wire:
        assert wire.metadata().cluster_id == cluster_id
        assert process.interrupt() == 0
    # The directory of another node, and of another cluster.
    other = run("start", file, "--set", "node.id=2")
    assert other.returncode == 1
    assert "doesn't match the configured node.id 2" in other.stderr


def test_format_chooses_features(tmp_path: Path) -> None:
    """The cluster begins with the features that it writes; without the checkpoint it begins with the newest ones."""
    file = str(write_properties(tmp_path / "server.properties", properties(tmp_path)))
    for options, said in (
        (("-f", "transaction.version"), "Can't parse feature=level string transaction.version: equals sign not found."),
        (("-f", "group.version=x"), "Can't parse feature=level string group.version=x: unable to parse x as a short."),
        (("-f", "group.version=2"), "No feature:group.version with feature level 2"),
        (("-r", "3.9", "-f", "metadata.version=21"), "Use --release-version instead of --feature metadata.version=X"),
        (("-s", "--set", "controller.quorum.voters=1@localhost:1"), "You cannot specify controller.quorum.voters and"),
    ):
        refused = run_here("format", file, *options)
        assert refused.returncode == 1
        assert said in refused.stderr
    assert not (tmp_path / "data").exists()
    formatted = run_here("format", file, "-r", "3.9", "--feature", "transaction.version=1", "-f", "group.version= 0")
    assert formatted.stdout == f"Formatting {tmp_path / 'data'} with metadata.version 3.9-IV0.\n"
    with Process(tmp_path / "log", file) as process, Wire(process.ready().address) as wire:
        found = wire.call(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
        levels = {feature.name: feature.max_version_level for feature in found.finalized_features}
        assert levels == {"metadata.version": 21, "kraft.version": 1, "transaction.version": 1}
        assert process.interrupt() == 0


def test_format_on_request_but_never_over_something(tmp_path: Path) -> None:
    file = str(write_properties(tmp_path / "server.properties", properties(tmp_path)))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "lost+found").mkdir()
    for arguments in ((file, "--format"), ("--data-dir", str(tmp_path / "data"), "--port", "0")):
        refused = run("start", *arguments)
        assert refused.returncode == 1
        assert "No `meta.properties` found" in refused.stderr
    (tmp_path / "data" / "lost+found").rmdir()
    with Process(tmp_path / "log", file, "--format") as process:
        process.ready()
        assert process.interrupt() == 0


def test_one_directory_of_several_is_new(tmp_path: Path) -> None:
    """A disk that is not mounted looks like a new one, so nothing is written there."""
    file = write_properties(tmp_path / "server.properties", properties(tmp_path))
    assert run_here("format", str(file)).returncode == 0
    both = f"log.dirs={tmp_path / 'data'},{tmp_path / 'more'}"
    refused = run("start", str(file), "--format", "--set", both)
    assert refused.returncode == 1
    assert f"No `meta.properties` found in {tmp_path / 'more'}" in refused.stderr
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("num.partitions=many", "Invalid value many for configuration num.partitions: Not a number of type INT"),
        ("num.partitions=0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        (
            "log.cleanup.policy=forget",
            "Invalid value forget for configuration log.cleanup.policy: String must be one of: compact, delete",
        ),
        ("process.roles=broken", "Invalid value broken for configuration process.roles: String must be one of: "),
        ("num.partitions", "--set takes KEY=VALUE, not 'num.partitions'"),
    ],
)
def test_a_wrong_value_stops_the_start(tmp_path: Path, assignment: str, said: str) -> None:
    done = run("start", "--ephemeral", "--port", "0", "--set", assignment)
    assert done.returncode == 1
    assert done.stderr.startswith(f"pykbroker: {said}"), done.stderr
    assert done.stdout == ""


def test_options_that_contradict_each_other(tmp_path: Path) -> None:
    file = str(write_properties(tmp_path / "server.properties", properties(tmp_path)))
    for option, message in (
        (("--port", "0"), "--port goes with"),
        (("--data-dir", "x"), "--data-dir goes with"),
        (("--ephemeral",), "--ephemeral goes with"),
    ):
        done = run("start", file, *option)
        assert done.returncode == 1
        assert message in done.stderr
    both = run("start", "--ephemeral", "--data-dir", str(tmp_path / "data"))
    assert (both.returncode, both.stdout) == (2, "")
    assert both.stderr == "pykbroker: --ephemeral does not go with --data-dir. Try 'pykbroker start --help'.\n"
    missing = run("start", str(tmp_path / "nothing.properties"))
    assert missing.returncode == 1
    assert "nothing.properties" in missing.stderr
    assert "Traceback" not in missing.stderr


def test_an_unknown_key_is_warned_about(tmp_path: Path) -> None:
    with Process(tmp_path / "log", "--ephemeral", "--port", "0", "--set", "num.partition=3") as process:
        process.ready()
        assert process.interrupt() == 0
        said = "WARNING Configuration num.partition is not known and has no effect: did you mean num.partitions?"
        assert said in process.log.read_text()


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "server.properties"
    texts = {"num.partitions": "7", **properties(tmp_path)}
    text = "".join(f"{key}={value}\n" for key, value in texts.items())
    for mark, lines in (("", 0), ("\ufeff", 1)):
        caplog.clear()
        path.write_text(mark + text)
        config = read(str(path), (), "/data", None).config
        assert config.int("num.partitions") == 7
        assert not config.warnings
        assert [str(path) in each.message and "byte order mark" in each.message for each in caplog.records] == (
            [True] * lines
        )


def test_a_port_in_use(tmp_path: Path) -> None:
    with Process(tmp_path / "log", "--ephemeral", "--port", "0") as process:
        _, port = process.ready().host_and_port
        done = run("start", "--data-dir", str(tmp_path / "data"), "--port", str(port))
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1] == (
            f"pykbroker: listener PLAINTEXT cannot be bound to localhost:{port}: Address already in use. Another "
            "program listens there, perhaps another node: --port N chooses another port, --port 0 a free one"
        )
        assert not (tmp_path / "data").exists()
        assert process.interrupt() == 0


def test_the_port_after_that_of_clients_may_be_taken(tmp_path: Path) -> None:
    port = steady_port()
    with socket.create_server(("127.0.0.1", port + 1)):
        with Process(tmp_path / "log", "--ephemeral", "--port", str(port)) as process:
            assert process.ready().host_and_port == ("localhost", port)
            assert process.interrupt() == 0
        assert f"Port {port + 1} is taken: the controller listens on a free port" in process.log.read_text()


@pytest.mark.parametrize(
    ("settings", "controller"),
    [
        ([], "CONTROLLER://localhost:0"),
        (["num.partitions=3"], "CONTROLLER://localhost:0"),
        (["controller.quorum.bootstrap.servers=localhost:5001"], "CONTROLLER://localhost:5001"),
    ],
)
def test_only_a_controller_that_was_not_named_takes_a_free_port(settings: list[str], controller: str) -> None:
    taken: list[int] = []

    def is_taken(port: int) -> bool:
        taken.append(port)
        return True

    config = read(None, settings, "/data", 5000, is_taken=is_taken).config
    assert [str(point) for point in config.listeners.all] == ["PLAINTEXT://localhost:5000", controller]
    assert config.list("controller.quorum.bootstrap.servers") == (controller.removeprefix("CONTROLLER://"),)
    assert taken in ([], [5001])


def test_interrupted_while_it_waits_for_a_controller(tmp_path: Path) -> None:
    alone = {
        **properties(tmp_path),
        "process.roles": "broker",
        "node.id": 2,
        "listeners": "PLAINTEXT://localhost:0",
        "advertised.listeners": "PLAINTEXT://localhost:0",
    }
    file = write_properties(tmp_path / "server.properties", alone)
    assert run_here("format", str(file)).returncode == 0
    with Process(tmp_path / "log", str(file)) as process:
        deadline = time.monotonic() + 120
        while "is now STARTING" not in process.log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert process.interrupt() == 0
        assert process.lines == []
