"""`pykbroker in-container` as the image's scripts run it: processes, files, and the one line of each refusal."""

from __future__ import annotations

import errno
import http.client
import json
import os
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from pykbroker.config.properties import parse
from pykbroker.tools.commands import in_container
from testkit.nodes.processes import ROOT, command, environment, run
from tests.node.starting.test_initial_topics import LINES

pytestmark = pytest.mark.slow

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
DEFAULTS = str(ROOT / "docker" / "scripts" / "kafka" / "server.properties")


def variables(folder: Path, **more: str) -> dict[str, str]:
    return {
        "CLUSTER_ID": CLUSTER_ID,
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
        "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:0",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS": "localhost:0",
        "KAFKA_LOG_DIRS": str(folder / "data"),
        "KAFKA_PYKBROKER_HEALTH_SOCKET": str(folder / "health.sock"),
        **more,
    }


def options(folder: Path, *more: str) -> list[str]:
    return ["--defaults", DEFAULTS, "--file", str(folder / "server.properties"), *more]


@contextmanager
def launched(folder: Path, env: Mapping[str, str], *more: str) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """Yield the process and its lines up to the one that reports that it serves."""
    words = command("in-container", "launch", *options(folder, *more))
    process = subprocess.Popen(words, env=environment(env), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith("pykbroker is ready"):
                break
        else:
            raise AssertionError("\n".join(lines))
        yield process, lines
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_launch_formats_starts_and_stops_in_order(tmp_path: Path) -> None:
    env = variables(tmp_path, KAFKA_PORT="tcp://1:2")
    with launched(tmp_path, env) as (process, lines):
        for expected in LINES:
            assert sum(expected in line for line in lines) == 1, lines
        assert sum("KAFKA_PORT" in line for line in lines) == 1
        assert run("health", "--socket", str(tmp_path / "health.sock")).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    written = parse((tmp_path / "server.properties").read_text())
    assert written["log.dirs"] == str(tmp_path / "data")
    assert f"cluster.id={CLUSTER_ID}" in (tmp_path / "data" / "meta.properties").read_text()
    # Again, as in a container that is restarted, and as in one with another cluster's volume.
    with launched(tmp_path, env):
        pass
    wrong = run("in-container", "launch", *options(tmp_path), env={**env, "CLUSTER_ID": "5L6g3nShT-eMCtK--X86sw"})
    assert wrong.returncode == 1
    (line,) = wrong.stderr.splitlines()
    assert f"Expected 5L6g3nShT-eMCtK--X86sw, but read {CLUSTER_ID}. The volume belongs to another cluster" in line
    other = run("in-container", "launch", *options(tmp_path), env={**env, "KAFKA_NODE_ID": "2"})
    assert other.returncode == 1
    assert "Stored node id 1 doesn't match previous node id 2" in other.stderr


def test_the_steps_of_confluents_image(tmp_path: Path) -> None:
    """configure, then a command that a user appended to it, then launch, with an empty ensure."""
    env = variables(tmp_path)
    assert run("in-container", "configure", *options(tmp_path), env=env).returncode == 0
    assert not (tmp_path / "data").exists()
    file = str(tmp_path / "server.properties")
    formatted = run("storage", "format", "-g", "--standalone", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", file)
    assert formatted.returncode == 0, formatted.stderr
    with launched(tmp_path, env, "--keep"):
        pass
    refused = run("in-container", "format", *options(tmp_path, "--keep"), env=env)
    assert refused.returncode == 1
    assert "Invalid cluster.id" in refused.stderr


def test_a_cluster_id_is_wanted_where_roles_are_given(tmp_path: Path) -> None:
    env = variables(tmp_path, CLUSTER_ID="")
    # Scripts that are appended to Confluent's `ensure` may still format the directories.
    assert run("in-container", "format", *options(tmp_path), env=env).returncode == 0
    assert not (tmp_path / "data").exists()
    refused = run("in-container", "launch", *options(tmp_path), env=env)
    assert refused.returncode == 1
    assert refused.stderr.startswith("pykbroker: CLUSTER_ID is not set")
    # A node from before KRaft has no id, and keeps the one that it got.
    old = {"KAFKA_BROKER_ID": "3", "KAFKA_LISTENERS": "PLAINTEXT://localhost:0", "CLUSTER_ID": ""}
    old |= {"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:0", "KAFKA_LOG_DIRS": str(tmp_path / "data")}
    ids = set()
    for _ in range(2):
        with launched(tmp_path, {**old, "KAFKA_PYKBROKER_HEALTH_SOCKET": str(tmp_path / "health.sock")}):
            ids.add(parse((tmp_path / "data" / "meta.properties").read_text())["cluster.id"])
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"KAFKA_TLS_TYPE": "JKS"}, "KAFKA_TLS_TYPE: this image gets no protection in this way"),
        ({"KAFKA_NUM_PARTITIONS": "many"}, "Invalid value many for configuration num.partitions"),
        ({"KAFKA_LOG_DIRS": "/proc/data"}, "/proc"),
        ({"PYKBROKER_FAULTS_HOST": "kafka"}, "PYKBROKER_FAULTS_HOST goes with PYKBROKER_FAULTS"),
        ({"PYKBROKER_FAULTS": "9405"}, "wants HOST:PORT"),
        ({"PYKBROKER_FAULTS": "0.0.0.0:0"}, "give the name under which they reach it"),
        (
            {
                "PYKBROKER_FAULTS": "127.0.0.1:0",
                "KAFKA_AUTHORIZER_CLASS_NAME": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            },
            "fault rules over HTTP go without an authorizer",
        ),
    ],
)
def test_what_stops_the_start_is_one_line(tmp_path: Path, more: dict[str, str], line: str) -> None:
    refused = run("in-container", "launch", *options(tmp_path), env=variables(tmp_path, **more))
    assert refused.returncode == 1
    assert len(refused.stderr.splitlines()) == 1, refused.stderr
    assert line in refused.stderr
    assert not (tmp_path / "data").exists()


def test_fault_rules_and_the_clock_are_served_where_a_variable_says(tmp_path: Path) -> None:
    env = variables(tmp_path, PYKBROKER_FAULTS="0.0.0.0:0", PYKBROKER_FAULTS_HOST="kafka, broker")
    with launched(tmp_path, env) as (_, lines):
        (line,) = [line for line in lines if "Fault rules are taken at" in line]
        place = urlsplit(line.partition(" at ")[2].partition("/faults")[0])
        assert place.hostname == "0.0.0.0", "other machines reach it"
        assert place.port is not None

        def ask(host: str) -> tuple[int, object]:
            # Under the name of another machine, but over loopback.
            with closing(http.client.HTTPConnection("127.0.0.1", place.port, timeout=60)) as connection:
                headers = {"Host": f"{host}:9405", "Content-Type": "application/json"}
                connection.request("POST", "/clock", json.dumps({"advance": "7 d"}), headers)
                answer = connection.getresponse()
                return answer.status, json.loads(answer.read())

        assert ask("broker") == (200, {"advanced_ms": 7 * 86_400_000})
        assert ask("elsewhere.example")[0] == 403
    with launched(tmp_path, variables(tmp_path)) as (_, lines):
        assert not [line for line in lines if "Fault rules" in line]


def test_a_mounted_file(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted.properties"
    mounted.write_text("num.partitions=4\nbroker.rack=mounted\n")
    done = run(
        "in-container", "configure", *options(tmp_path, "--mounted", str(mounted)),
        env=variables(tmp_path, KAFKA_BROKER_RACK="variable"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = parse((tmp_path / "server.properties").read_text())
    assert (written["num.partitions"], written["broker.rack"]) == ("4", "variable")


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    file = tmp_path / "missing" / "server.properties"
    words = ["--defaults", DEFAULTS, "--file", str(file)]
    done = run("in-container", "configure", *words, env=variables(tmp_path))
    assert done.returncode == 0
    assert f"{file} is not written: No such file or directory" in done.stdout
    assert not os.path.exists(file.parent)


def test_passwords_are_in_no_file_that_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the file is another user's and its mode cannot be changed, a file of our own replaces it, or the start
    stops."""
    file = tmp_path / "server.properties"
    for name, text in variables(tmp_path, KAFKA_SSL_KEY_PASSWORD="Tr0ub4dor").items():
        monkeypatch.setenv(name, text)

    def refuse(*words: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    def configured() -> None:
        in_container.configure.main(options(tmp_path), standalone_mode=False)

    configured()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setattr(os, "fchmod", refuse)
    file.write_text("old=text")
    file.chmod(0o664)
    configured()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert parse(file.read_text())["ssl.key.password"] == "Tr0ub4dor"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    monkeypatch.setattr(os, "replace", refuse)
    file.write_text("old=text")
    file.chmod(0o664)
    with pytest.raises(click.ClickException, match="would have passwords, but another user owns it, with mode 0664"):
        configured()
    assert file.read_text() == "old=text"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
