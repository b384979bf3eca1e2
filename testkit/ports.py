"""Ports for nodes that must find their port free again when they restart."""

from __future__ import annotations

import os
import random
import socket
from itertools import cycle

# A port belongs to a node also while the node is down, so each worker of a parallel run has ports of its own.
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
# Below the ports that Linux gives to connections without a fixed port, so that the broker finds its port free.
PORTS = range(20_000, 30_000, 2)[_WORKER % _WORKERS :: _WORKERS]
# A node takes its port long after the test chose it, so each port is used once, until all of them were.
_IN_TURN = cycle(random.sample(PORTS, len(PORTS)))


def steady_port() -> int:
    """Return a free port, unlike all before it, whose next one, for the controller, is free as well."""
    return next(port for port in _IN_TURN if _free(port) and _free(port + 1))


def _free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
