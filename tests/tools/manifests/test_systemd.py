"""The unit: systemd can read it, and `pykbroker start` accepts its command."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pykbroker.__main__ import main
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import load
from pykbroker.config.protection import refuse
from pykbroker.config.typed_config import find_key
from pykbroker.entry import start
from pykbroker.entry.health import USUAL_SOCKETS
from pykbroker.entry.options import assignments
from pykbroker.tools.manifests.secured import Security
from pykbroker.tools.manifests.systemd import CREDENTIALS, SECRETS, SystemdUnit, systemd

FILTER = "SystemCallFilter="


def service(unit: SystemdUnit) -> dict[str, str]:
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#",), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # keys have capitals
    # The only key that occurs several times.
    parser.read_string("\n".join(line for line in systemd(unit).splitlines() if not line.startswith(FILTER)))
    assert parser.sections() == ["Unit", "Service", "Install"]
    return dict(parser["Service"])


def test_start_takes_the_command() -> None:
    found = service(SystemdUnit(program="/opt/pykbroker/bin/pykbroker", properties="/etc/k.properties"))
    program, verb, *words = shlex.split(found["ExecStart"])
    assert (program, verb) == ("/opt/pykbroker/bin/pykbroker", "start")
    options = vars(start.parser().parse(words))
    assert options["properties"] == "/etc/k.properties"
    ((key, path),) = assignments(options["settings"])
    assert find_key(key) is not None
    assert path in USUAL_SOCKETS, "`pykbroker health` finds it"
    assert path.startswith(f"/run/{found['RuntimeDirectory']}/")


def test_how_it_runs_and_ends() -> None:
    found = service(SystemdUnit(program="/bin/pykbroker", user="kafka"))
    assert (found["Type"], found["Restart"], found["User"]) == ("exec", "on-failure", "kafka")
    assert (found["KillSignal"], found["KillMode"], found["TimeoutStopSec"]) == ("SIGTERM", "mixed", "60")
    assert int(found["LimitNOFILE"]) >= 100_000
    assert (found["ProtectSystem"], found["NoNewPrivileges"]) == ("strict", "yes")


def test_what_the_node_cannot_reach() -> None:
    unit = SystemdUnit(program="/p")
    found = service(unit)
    assert {found[key] for key in ("PrivateMounts", "RemoveIPC", "PrivateTmp", "PrivateDevices")} == {"yes"}
    assert (found["ProtectProc"], found["SystemCallErrorNumber"]) == ("invisible", "EPERM")
    filters = [line.removeprefix(FILTER) for line in systemd(unit).splitlines() if line.startswith(FILTER)]
    # The first allows a set, the second removes some, the third adds calls of worker processes again.
    assert filters == ["@system-service", "~@privileged @resources", "setpriority"]


def test_the_node_may_write_to_its_data() -> None:
    assert service(SystemdUnit(program="/p"))["StateDirectory"] == "pykbroker"
    found = service(SystemdUnit(program="/p", data=("/var/lib/a/b", "/disk1", "/disk2/kafka", "/var/lib/c")))
    assert (found["StateDirectory"], found["ReadWritePaths"]) == ("a/b c", "/disk1 /disk2/kafka")
    elsewhere = service(SystemdUnit(program="/p", data=("/disk1",)))
    assert "StateDirectory" not in elsewhere
    assert elsewhere["ReadWritePaths"] == "/disk1"


def commented(unit: SystemdUnit) -> dict[str, str]:
    """Return the properties that the comment names."""
    lines = (line.removeprefix("#   ") for line in systemd(unit).splitlines() if line.startswith("#   "))
    pairs = (line.partition("=") for line in lines if re.match(r"[a-z0-9.-]+=", line))
    return {key: text for key, _, text in pairs}


@pytest.mark.parametrize("security", [Security.SSL, Security.SASL_SSL])
def test_a_secured_node_gets_copies_of_files_that_are_roots(tmp_path: Path, security: Security) -> None:
    unit = SystemdUnit(program="/p", security=security)
    loaded = [line for line in systemd(unit).splitlines() if line.startswith("LoadCredential=")]
    assert loaded == [f"LoadCredential={name}:{SECRETS}/{name}" for name in ("node.pem", "authority.pem")]
    properties = commented(unit)
    assert properties["ssl.keystore.location"] == f"{CREDENTIALS}/node.pem"
    assert properties["ssl.truststore.location"] == f"{CREDENTIALS}/authority.pem"
    assert "LoadCredential" not in systemd(SystemdUnit(program="/p"))
    # They are all that a node needs besides its id and its quorum.
    node = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.bootstrap.servers": "h:9093",
        "log.dirs": str(tmp_path),
        **properties,
    }
    refuse(node)
    config = load(node)
    assert {point.listener_name for point in config.listeners.advertised_broker} == {"NODES", "CLIENTS"}
    protocols = dict(pair.split(":") for pair in properties["listener.security.protocol.map"].split(","))
    assert protocols == {"CONTROLLER": "SSL", "NODES": "SSL", "CLIENTS": security.name}
    # The directory is formatted before systemd shows the files.
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in node.items()))
    assert main(["format", str(file), "--standalone"]) == 0


@pytest.mark.parametrize("security", list(Security))
def test_systemd_has_no_complaint_where_it_is_installed(tmp_path: Path, security: Security) -> None:
    unit = tmp_path / "pykbroker-of-a-test.service"
    unit.write_text(systemd(SystemdUnit(program="/bin/sh", data=("/var/lib/pykbroker", "/tmp"), security=security)))
    assert unit.read_text().endswith("WantedBy=multi-user.target\n")
    if shutil.which("systemd-analyze") is not None:
        said = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert [line for line in said.stderr.splitlines() if unit.stem in line] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"program": "pykbroker"},
        {"program": "/a b"},
        {"properties": "/etc/%n"},
        {"properties": "/etc/../x"},
        {"data": ("/a$b",)},
        {"data": ("/",)},
        {"user": "a\nb"},
        {"user": "%u"},
    ],
)
def test_a_value_that_cannot_stand_there_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        SystemdUnit(**{"program": "/p", **wrong})
    assert "\n" not in str(refused.value)
