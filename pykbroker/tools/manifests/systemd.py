"""A unit for systemd: runs `pykbroker start` with a properties file, as a user of its own that may write almost nothing
but its data directories.

The key of a secured node belongs to root. systemd gives the node a copy that no other user can read (LoadCredential).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.tools.container.server_properties import scram_lines
from pykbroker.tools.manifests import checked
from pykbroker.tools.manifests.secured import ADMIN, AUTHORITY_FILE, NODE_FILE, Security, client_as_node, secured_keys

_STATE: Final = "/var/lib/"
_HEALTH_SOCKET: Final = "/run/pykbroker/health.sock"
#: The folder where root keeps NODE_FILE and AUTHORITY_FILE, and the folder with their copies, which only the node sees.
SECRETS: Final = "/etc/pykbroker/secrets"
CREDENTIALS: Final = "/run/credentials/pykbroker.service"


@dataclass(slots=True, frozen=True, kw_only=True)
class SystemdUnit:
    """The values of a unit: absolute paths, and the user that the node runs as. Raises ConfigError."""

    #: the program `pykbroker`
    program: str
    properties: str = "/etc/pykbroker/server.properties"
    user: str = "pykbroker"
    #: log.dirs of the properties
    data: tuple[str, ...] = ("/var/lib/pykbroker",)
    security: Security = Security.PLAINTEXT

    def __post_init__(self) -> None:
        for path in (self.program, self.properties, *self.data):
            checked.path(path)
        checked.user(self.user)


def systemd(unit: SystemdUnit) -> str:
    # systemd makes directories below /var/lib itself; others must exist and belong to the user.
    state = [path.removeprefix(_STATE) for path in unit.data if path.startswith(_STATE)]
    others = [path for path in unit.data if not path.startswith(_STATE)]
    directories = f"StateDirectory={' '.join(state)}\nStateDirectoryMode=0750\n" if state else ""
    directories += f"ReadWritePaths={' '.join(others)}\n" if others else ""
    credentials = "".join(f"LoadCredential={file}:{SECRETS}/{file}\n" for file in (NODE_FILE, AUTHORITY_FILE))
    return f"""# /etc/systemd/system/pykbroker.service, for {unit.properties} with log.dirs={",".join(unit.data)}
{_what_a_person_makes(unit)}# Before the first start:
#   useradd --system --no-create-home --shell /usr/sbin/nologin {unit.user}
#   install -d -o {unit.user} -g {unit.user} -m 0750 {" ".join(unit.data)}
#   runuser -u {unit.user} -- {unit.program} format {unit.properties} --cluster-id ID ...
#   systemctl daemon-reload && systemctl enable --now pykbroker
# `pykbroker health` of root says whether it serves.
[Unit]
Description=pykbroker, a Kafka broker
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
User={unit.user}
ExecStart={unit.program} start {unit.properties} --set pykbroker.health.socket={_HEALTH_SOCKET}
Restart=on-failure
RestartSec=2
# The node alone is told to stop: a controlled shutdown moves leaders, closes logs and ends the node's worker processes.
KillMode=mixed
KillSignal=SIGTERM
TimeoutStopSec=60
# A partition has several open files, a client has a socket.
LimitNOFILE=1048576
{credentials if unit.security.is_secured else ""}
{directories}RuntimeDirectory=pykbroker
RuntimeDirectoryMode=0750
UMask=0027
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=read-only
PrivateTmp=yes
PrivateDevices=yes
PrivateMounts=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
RemoveIPC=yes
# Netlink: the C library asks it for this machine's addresses when it resolves a name.
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
# The node's worker processes step back behind its event loop.
SystemCallFilter=setpriority
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
"""


def _what_a_person_makes(unit: SystemdUnit) -> str:
    """Return the comment with the files and the properties that protect a node."""
    if not unit.security.is_secured:
        return ""
    keys = {
        "listeners": "CONTROLLER://:9093,NODES://:9094,CLIENTS://:9092",
        "advertised.listeners": "NODES://HOST:9094,CLIENTS://HOST:9092",
        **secured_keys(unit.security, CREDENTIALS),
    }
    keys |= scram_lines(keys)
    properties = "".join(f"#   {key}={text}\n" for key, text in keys.items())
    if unit.security is Security.SASL_SSL:
        clients = f"""\
# Clients log in with SCRAM-SHA-512. Once a node serves, root makes the first user, and types the password:
#   {unit.program} users set {ADMIN} -b HOST:9094 {client_as_node(SECRETS)}
"""
    else:
        clients = f"""\
# Clients show a certificate of that authority. CN={ADMIN} may do everything, and others what ACLs allow them.
"""
    return f"""\
# {SECRETS} is root's, mode 0700. It has {NODE_FILE}, the key and the certificate of this node (CN=node, with
# the names of this machine), and {AUTHORITY_FILE}, what nodes and clients trust. For a trial:
#   {unit.program} tls create FOLDER --host HOST
# systemd reads both at a start, so a new certificate takes a restart. {unit.properties} has node.id, the quorum and:
{properties}{clients}"""
