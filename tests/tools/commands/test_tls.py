"""`pykbroker tls create`: nodes and clients can read its files, and it overwrites nothing."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pykbroker.__main__ import main
from pykbroker.config.properties import parse
from pykbroker.tls.contexts import client_context, read_material, server_context
from pykbroker.tls.settings import settings_of


def test_a_node_and_a_client_read_what_was_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pykbroker.config.load import development_profile, load

    folder = tmp_path / "made"
    assert main(["tls", "create", str(folder), "--host", "localhost", "--host", "127.0.0.1", "--client", "alice"]) == 0
    assert capsys.readouterr().out.split() == [str(folder / "node.properties"), str(folder / "alice.properties")]
    for file in folder.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name, make in (("node", server_context), ("alice", client_context)):
        properties = parse((folder / f"{name}.properties").read_text())
        settings = settings_of(load({**development_profile(str(tmp_path), 0), **properties}), "SSL")
        assert make(settings, read_material(settings))


def test_a_second_run_issues_with_the_same_authority(tmp_path: Path) -> None:
    assert main(["tls", "create", str(tmp_path)]) == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert main(["tls", "create", str(tmp_path), "--client", "bob"]) == 0
    assert {name: (tmp_path / name).read_bytes() for name in before} == before
    assert (tmp_path / "bob.p12").exists()


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bob.pem").write_bytes(b"mine")
    assert main(["tls", "create", str(tmp_path), "--client", "bob"]) == 1
    assert "bob.pem" in capsys.readouterr().err
    assert (tmp_path / "bob.pem").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["node", "a/b", "..", ""])
def test_names_that_are_no_files_are_refused(name: str, tmp_path: Path) -> None:
    assert main(["tls", "create", str(tmp_path / "made"), "--client", name]) == 2
    assert not (tmp_path / "made").exists()


def test_help_loads_no_cryptography() -> None:
    program = (
        "import sys\nfrom pykbroker.__main__ import main\nmain(['tls', 'create', '--help'])\n"
        "assert 'cryptography' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=True)
