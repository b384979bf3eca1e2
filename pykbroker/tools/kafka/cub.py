"""cub: commands with which scripts wait for a cluster or another server, as in Confluent's images.

Confluent's images have them as cub and dub, and from version 8 on as ub. Responsible for kafka-ready, for commands that
wait until a server accepts a connection (wait, zk-ready) or answers over HTTP (sr-ready and similar commands), and for
ensure and path. The exit status is 0 if the condition holds, and 1 when the time is over.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

from pykbroker.entry.failures import said_of
from pykbroker.entry.lost_output import watched_output

#: command -> the path of the HTTP request
_OVER_HTTP: Final = {
    "connect-ready": "/connectors",
    "control-center-ready": "/",
    "kr-ready": "/topics",
    "ksql-server-ready": "/info",
    "sr-ready": "/config",
}
_PAUSE_SECONDS: Final = 0.5
_LONGEST_ATTEMPT_SECONDS: Final = 10.0
_MODES: Final = {
    "e": ("exists", os.F_OK),
    "existence": ("exists", os.F_OK),
    "executable": ("is executable", os.X_OK),
    "r": ("is readable", os.R_OK),
    "readable": ("is readable", os.R_OK),
    "w": ("is writable", os.W_OK),
    "writable": ("is writable", os.W_OK),
    "x": ("is executable", os.X_OK),
}
#: Takes the seconds that are left; returns None if the condition holds, else the reason why it does not.
Attempt = Callable[[float], str | None]


def run(words: Sequence[str]) -> int:
    """Run the command line that a script gives. Returns the exit status, which is 2 for an unknown command line."""
    given = _parser().parse_args(words)
    if given.command == "ensure":
        missing = [name for name in given.names if not os.environ.get(name)]
        return _ended(f"{', '.join(missing)} is not set" if missing else None)
    if given.command == "path":
        said, mode = _MODES[given.mode]
        return _ended(None if os.access(given.path, mode) else f"Check if {given.path} {said} failed")
    if given.command == "kafka-ready":
        attempt = _brokers(given)
    elif given.command == "zk-ready":
        addresses = [_host_and_port(entry) for entry in given.addresses.partition("/")[0].split(",")]
        attempt = _connection(addresses)
    elif given.command in _OVER_HTTP:
        attempt = _answer(given.host, given.port, _OVER_HTTP[given.command], secure=given.secure)
    else:
        attempt = _connection([(given.host, given.port)])
    return _ended(_waited(attempt, given.timeout))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("cub", description="Wait for a cluster or another server.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    ready = commands.add_parser("kafka-ready", help="wait until a cluster has so many brokers")
    ready.add_argument("-b", "--bootstrap_broker_list", "--bootstrap-server", dest="bootstrap", required=True)
    ready.add_argument("-c", "--config", help="a properties file for the client")
    ready.add_argument("-s", "--security-protocol", help="PLAINTEXT, unless --config has another")
    ready.add_argument("brokers", type=int)
    ready.add_argument("timeout", type=float, help="seconds")
    zookeeper = commands.add_parser("zk-ready", help="wait until one of these addresses takes a connection")
    zookeeper.add_argument("addresses", metavar="host:port,...")
    zookeeper.add_argument("timeout", type=float, help="seconds")
    for name in ("wait", *_OVER_HTTP):
        what = "it takes a connection" if name == "wait" else f"GET {_OVER_HTTP[name]} is answered"
        server = commands.add_parser(name, help=f"wait until {what}")
        server.add_argument("host")
        server.add_argument("port", type=int)
        server.add_argument("timeout", type=float, help="seconds")
        server.add_argument("--secure", action="store_true", help="over TLS")
    ensure = commands.add_parser("ensure", help="check that variables are set")
    ensure.add_argument("names", nargs="+")
    path = commands.add_parser("path", help="check a path")
    path.add_argument("path")
    path.add_argument("mode", choices=sorted(_MODES))
    return parser


def _ended(reason: str | None) -> int:
    if reason is None:
        return 0
    print(reason, file=sys.stderr)
    return 1


def _waited(attempt: Attempt, seconds: float) -> str | None:
    """Try until the condition holds, at least once; returns the last reason when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        left = max(deadline - time.monotonic(), _PAUSE_SECONDS)
        reason = attempt(min(left, _LONGEST_ATTEMPT_SECONDS))
        if reason is None or time.monotonic() + _PAUSE_SECONDS > deadline:
            return reason
        time.sleep(_PAUSE_SECONDS)


def _brokers(given: argparse.Namespace) -> Attempt:
    from pykbroker.config.kinds import ConfigError
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.client_properties import read_properties, settings_of
    from pykbroker.tools.cluster.failure import AskFailed, NotServed

    try:
        properties = read_properties(given.config)
        if given.security_protocol:
            properties["security.protocol"] = given.security_protocol
        settings_of(properties, given.bootstrap, patient=False)
    except (OSError, ValueError, ConfigError, NotServed) as error:
        sys.exit(f"cub: {error}")

    def attempt(left: float) -> str | None:
        limits = dict.fromkeys(("default.api.timeout.ms", "request.timeout.ms"), str(int(left * 1000)))
        try:
            with AskedCluster(settings_of({**properties, **limits}, given.bootstrap, patient=False)) as cluster:
                found = len(cluster.nodes())
        except AskFailed as error:
            return str(error)
        return None if found >= given.brokers else f"Expected {given.brokers} brokers but found only {found}"

    return attempt


def _connection(addresses: Sequence[tuple[str, int]]) -> Attempt:
    def attempt(left: float) -> str | None:
        reason = ""
        for host, port in addresses:
            try:
                socket.create_connection((host, port), left).close()
            except OSError as error:
                reason = f"{host}:{port} takes no connection: {error.strerror or error}"
            else:
                return None
        return reason

    return attempt


def _answer(host: str, port: int, path: str, *, secure: bool) -> Attempt:
    import http.client

    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection

    def attempt(left: float) -> str | None:
        connection = kind(host, port, timeout=left)
        try:
            connection.request("GET", path)
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"{host}:{port} does not answer: {error or type(error).__name__}"
        finally:
            connection.close()
        return None if 200 <= status < 300 else f"{host}:{port} answers GET {path} with {status}"

    return attempt


def _host_and_port(address: str) -> tuple[str, int]:
    from pykbroker.tools.cluster.bootstrap_list import NotAnAddress, address_of

    try:
        return address_of(address)
    except NotAnAddress:
        sys.exit(f"cub: {address} is not HOST:PORT")


def main(words: Sequence[str]) -> int:
    """Run the command line. Returns 1 if standard output does not take the help, with a line unless its reader has
    closed it."""
    try:
        with watched_output():
            return run(words)
    except BrokenPipeError:
        return 1
    except OSError as error:
        print(f"cub: {said_of(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
