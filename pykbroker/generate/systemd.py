"""A unit for systemd: `pykbroker start` with a properties file, as a user of its own, with little else in reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pykbroker.generate import checked

_STATE: Final = "/var/lib/"
_HEALTH_SOCKET: Final = "/run/pykbroker/health.sock"


@dataclass(slots=True, frozen=True, kw_only=True)
class SystemdUnit:
    """What a unit is made of: absolute paths, and the user that the node runs as. Raises ConfigError."""

    #: the program `pykbroker`
    program: str
    properties: str = "/etc/pykbroker/server.properties"
    user: str = "pykbroker"
    #: log.dirs of the properties
    data: tuple[str, ...] = ("/var/lib/pykbroker",)

    def __post_init__(self) -> None:
        for path in (self.program, self.properties, *self.data):
            checked.path(path)
        checked.user(self.user)


def systemd(unit: SystemdUnit) -> str:
    # systemd makes directories below /var/lib by itself; others must be there and be the user's.
    state = [path.removeprefix(_STATE) for path in unit.data if path.startswith(_STATE)]
    others = [path for path in unit.data if not path.startswith(_STATE)]
    directories = f"StateDirectory={' '.join(state)}\nStateDirectoryMode=0750\n" if state else ""
    directories += f"ReadWritePaths={' '.join(others)}\n" if others else ""
    return f"""# /etc/systemd/system/pykbroker.service, for {unit.properties} with log.dirs={",".join(unit.data)}
# Before the first start:
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
