"""A node's files are only for its own user, whatever its umask is and whichever user made its directory. A node runs
only its own code, whatever is in the current directory."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path

import pytest

from pykbroker_wire.errors import ErrorCode
from testkit.nodes.nodes import eventually
from testkit.nodes.processes import ROOT, Process, command, environment, write_properties
from testkit.nodes.wire import Wire, batch

pytestmark = pytest.mark.slow

#: A umask that removes no permission.
OPEN = ("sh", "-c", 'umask 0; exec "$@"', "sh")


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the files that other users may read, by name."""
    found = {}
    for path in folder.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077:
            found[str(path.relative_to(folder))] = oct(mode)
    return found


def use(addresses: str) -> None:
    """Make the node write every kind of file that it writes while it serves."""
    each = addresses.split(",")
    with Wire(each[0]) as wire:
        assert wire.try_create("t", 1, 1, {}).error_code == ErrorCode.NONE

    def is_written() -> bool:
        """Return True if a node accepts a record; one of them is the leader."""
        for address in each:
            with Wire(address) as wire:
                if wire.produce("t", batch(b"x")).error_code == ErrorCode.NONE:
                    return True
        return False

    eventually("a record is written", is_written)


def test_a_formatted_a_running_and_a_stopped_node(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    properties = write_properties(
        tmp_path / "server.properties",
        {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:0",
            "offsets.topic.replication.factor": 1,
            "log.dirs": data,
        },
    )
    words = ("--standalone", "--add-scram", "SCRAM-SHA-256=[name=alice,password=secret]")
    subprocess.run([*OPEN, *command("format", str(properties), *words)], env=environment(), check=True, timeout=60)
    assert not open_to_others(data)
    assert list(data.glob("bootstrap.checkpoint"))
    with Process(tmp_path / "log", str(properties), prefix=OPEN) as node:
        use(node.ready().address)
        assert not open_to_others(data)
        assert node.interrupt() == 0
    assert not open_to_others(data)


def test_a_cluster_by_one_command(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for name in ("uvloop", "h11", "google_crc32c"):
        (here / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write(__name__)\n")
    data = tmp_path / "tree"
    # The command runs as by its script, which has no current directory in its path.
    go = ("sh", "-c", f'cd {here} && umask 0; python=$1; shift; exec "$python" -P "$@"', "sh")
    with Process(tmp_path / "log", "--brokers", "2", "--port", "0", "--data-dir", str(data), prefix=go) as cluster:
        use(cluster.ready(120).address)
        assert list(data.rglob("server.log"))
        assert not open_to_others(data)
        assert cluster.interrupt() == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("where", ["pykbroker", "docker"])
def test_programs_of_ours_are_run_without_the_current_directory(where: str) -> None:
    runs = re.compile(r'sys\.executable, "-m"|bin/python3? -m pykbroker')
    paths = [path for path in (ROOT / where).rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not [str(path) for path in paths if runs.search(path.read_text(errors="replace"))]
