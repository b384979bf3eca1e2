"""A node's health, over its own socket and through `pykbroker health`."""

from __future__ import annotations

import json
import os
import socket
import stat
from pathlib import Path
from threading import Thread

import pytest

from pykbroker.__main__ import main
from pykbroker.entry import health
from pykbroker.entry.data_dirs import ephemeral_dirs
from pykbroker.node.node_health import NodeHealth
from pykbroker.node_to_controller.broker_state import BrokerState
from pykbroker.runtime.unix_sockets import bind_unix
from testkit.acting import acts
from testkit.nodes.processes import Process, format_combined, run
from testkit.nodes.sim import Play, Sim

_HEALTHY = NodeHealth(node_id=1, broker=BrokerState.RUNNING, active=True, leader_id=1, is_controller=True)


def test_what_makes_a_node_unhealthy() -> None:
    assert _HEALTHY.problems() == []
    line = json.loads(_HEALTHY.line())
    assert (line["healthy"], line["broker"], line["leader_id"]) == (True, "RUNNING", 1)
    starting = NodeHealth(node_id=1, broker=BrokerState.RECOVERY, active=False, leader_id=None, is_controller=True)
    assert starting.problems() == ["the broker is RECOVERY", "no leader of the quorum is known"]
    assert json.loads(starting.line())["healthy"] is False
    fenced = NodeHealth(node_id=1, broker=BrokerState.RUNNING, active=False, leader_id=None, is_controller=False)
    assert fenced.problems() == ["the broker is fenced"]
    controller = NodeHealth(node_id=1, broker=None, active=False, leader_id=2, is_controller=True)
    assert controller.problems() == []


def test_a_node_knows_its_health(play: Play) -> None:
    async def scenario(sim: Sim) -> NodeHealth:
        return sim.node.health()

    assert play(scenario, {}) == _HEALTHY


@pytest.mark.slow
@acts(broker=("pykbroker.health.socket",))
def test_a_node_answers_on_its_health_socket(tmp_path: Path) -> None:
    path = tmp_path / "health.sock"
    file = format_combined(tmp_path, {"log.dirs": tmp_path / "data", "pykbroker.health.socket": path})
    nothing = run("health", "--socket", str(path))
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert nothing.stderr == f"pykbroker: no node answers at {path}: No such file or directory\n"
    with Process(tmp_path / "log", str(file)) as process:
        process.ready()
        assert stat.filemode(path.stat().st_mode) == "srw-------"
        asked = run("health", "--socket", str(path))
        assert (asked.returncode, asked.stdout) == (0, "node 1 serves\n")
        assert json.loads(run("health", "--socket", str(path), "-o", "json").stdout)["broker"] == "RUNNING"
        # Another node does not take the socket of a living one.
        second = run("start", str(file), "--set", f"log.dirs={tmp_path / 'other'}", "--format")
        assert second.returncode == 1
        assert f"the socket {path} cannot be bound: another process answers there" in second.stderr
        assert process.interrupt() == 0
    assert not path.exists()


def test_a_node_that_does_not_serve_is_alive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A probe that kills a node because there is no quorum would prevent the quorum."""
    path = tmp_path / "health.sock"
    starting = NodeHealth(node_id=1, broker=BrokerState.STARTING, active=False, leader_id=None, is_controller=True)
    words = ["health", "--socket", str(path)]
    assert main([*words, "--alive"]) == 1
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer_twice() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.sendall(starting.line())

        node = Thread(target=answer_twice, daemon=True)
        node.start()
        assert [main(words), main([*words, "--alive"])] == [1, 0]
        node.join(60)
    said = capsys.readouterr().out.splitlines()
    assert said == ["node 1 does not serve: the broker is STARTING; no leader of the quorum is known"] * 2


@pytest.mark.slow
def test_the_socket_of_a_killed_node_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "health.sock"
    file = format_combined(tmp_path, {"log.dirs": tmp_path / "data", "pykbroker.health.socket": path})
    with Process(tmp_path / "log", str(file)) as process:
        process.ready()
        process.kill()
    assert path.is_socket()
    with Process(tmp_path / "log", str(file)) as process:
        process.ready()
        assert run("health", "--socket", str(path)).returncode == 0


def test_nothing_but_a_dead_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("kept")
    with pytest.raises(OSError, match=f"the socket {path} cannot be bound: something else is there"):
        bind_unix(str(path))
    assert path.read_text() == "kept"
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(dead))
    with bind_unix(str(dead)) as bound:
        assert bound.getsockname() == str(dead)
    with pytest.raises(OSError, match="cannot be bound: AF_UNIX path too long"):
        bind_unix(str(tmp_path / ("x" * 120)))


# -- without an option ------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default data directory of a person who has none yet, on a machine without a container's node."""
    for key in ("XDG_DATA_HOME", "TEMP", "TMP"):
        monkeypatch.setenv(key, "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(health, "USUAL_SOCKETS", ())
    return tmp_path / "home" / ".local" / "share" / "pykbroker"


@pytest.mark.slow
def test_a_node_is_found_without_an_option(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    socket_path = home / "health.sock"
    with Process(tmp_path / "log", "--port", "0") as process:
        process.ready()
        assert stat.filemode(socket_path.stat().st_mode) == "srw-------"
        assert main(["health"]) == 0
        assert capsys.readouterr().out == "node 1 serves\n"
        assert "is not served here" not in process.log.read_text()
        process.kill()
    assert main(["health"]) == 1
    ended = "the node that made this socket no longer runs"
    assert capsys.readouterr() == ("", f"pykbroker: no node answers at {socket_path}: {ended}\n")
    # The next start takes the socket of the killed node over, and removes it.
    with Process(tmp_path / "log", "--port", "0") as process:
        process.ready()
        assert main(["health"]) == 0
        assert process.interrupt() == 0
    assert not socket_path.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_each_of_several_nodes_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path of a socket is longer than the operating system takes."""
    long = tmp_path / ("long" * 30)
    with (
        Process(tmp_path / "one", "--ephemeral", "--port", "0") as one,
        Process(tmp_path / "two", "--ephemeral", "--port", "0", "--set", "node.id=2") as two,
        Process(tmp_path / "three", "--data-dir", str(long), "--port", "0", "--set", "node.id=3") as three,
    ):
        for node in (one, two, three):
            node.ready()
        assert main(["health"]) == 0
        assert sorted(capsys.readouterr().out.splitlines()) == ["node 1 serves", "node 2 serves"]
        assert main(["health", "--data-dir", str(long), "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["node_id"] == 3


@pytest.mark.usefixtures("home")
def test_no_node_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health"]) == 1
    assert "--data-dir DIR asks the node that was started with it" in capsys.readouterr().err
    assert main(["health", "--data-dir", str(tmp_path / "nowhere")]) == 1
    path = tmp_path / "nowhere" / "health.sock"
    assert capsys.readouterr() == ("", f"pykbroker: no node answers at {path}: No such file or directory\n")


@pytest.mark.slow
def test_a_directory_without_sockets_does_not_stop_the_start(tmp_path: Path) -> None:
    """Something else has the name of the socket, which stands for a file system that has no sockets."""
    words = ("--data-dir", str(tmp_path / "data"), "--port", "0")
    with Process(tmp_path / "log", *words) as process:
        process.ready()
        assert process.interrupt() == 0
    (tmp_path / "data" / "health.sock").write_text("kept")
    with Process(tmp_path / "log", *words) as process:
        process.ready()
        assert "There is no health socket, so `pykbroker health` does not find this node" in process.log.read_text()
        assert process.interrupt() == 0
    assert (tmp_path / "data" / "health.sock").read_text() == "kept"


def test_directories_of_other_users_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "pykbroker-own").mkdir()
    (tmp_path / "pykbroker-link").symlink_to(tmp_path)
    assert ephemeral_dirs() == [str(tmp_path / "pykbroker-own")]
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    assert ephemeral_dirs() == []
