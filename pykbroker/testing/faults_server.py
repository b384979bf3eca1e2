"""Fault rules over HTTP, for tests in any language: `pykbroker start --faults 127.0.0.1:9405`.

    GET    /faults                              every rule, with its counts
    POST   /faults                              add one: the JSON of FaultRule; 201 and the rule with its id
    DELETE /faults                              remove all
    GET    /faults/ID                           one rule
    DELETE /faults/ID                           remove it
    GET    /faults/ID/wait?count=1&timeout_ms=  wait until that many requests have matched; 408 when they have not

Answers are JSON; an error is `{"error": "one line"}`. Responsible for the check of callers: the address is loopback
unless names are given under which other machines reach it. The Host header of a request, and its Origin header if it
has one, must have such a name or a name of loopback. So no web page can send requests through a browser by DNS
rebinding. The numbers of connections and rules (faults/rule_set.py) and the bytes of a request are limited. A broker
with an authorizer does not get this server.
"""

from __future__ import annotations

import io
import json
import logging
import re
import socket
import threading
import time
from collections.abc import Iterable
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pykbroker.config.kinds import ConfigError, is_loopback
from pykbroker.config.load import Config
from pykbroker.dispatch.dispatcher import MakeDispatcher
from pykbroker.testing.faults.fault_rule import FaultError, FaultRule
from pykbroker.testing.faults.rule_set import Fault, Faults
from pykbroker.testing.traffic import Traffic
from pykbroker.testing.watched_dispatcher import WatchedDispatcher

logger = logging.getLogger(__name__)

MOST_BODY_BYTES = 64 * 1024
MOST_CONNECTIONS = 32
_MOST_DRAINED_BYTES = 16 * MOST_BODY_BYTES
LONGEST_WAIT_MS = 600_000
_DEFAULT_WAIT_MS = 60_000
#: The longest time in which a request must arrive.
_REQUEST_SECONDS = 10.0
#: The interval of the check whether the server is to end.
_POLL_SECONDS = 0.05
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_RULE = re.compile(r"/faults/([0-9]{1,12})(/wait)?")


class FaultsServer:
    """Make it before the node, and pass `make_dispatcher` to the node. `start` takes the address, `close` releases it.

    `address`: `host:port`, where port 0 takes a free one. `hosts`: names under which other machines reach it; without
    them the address must be loopback.
    """

    def __init__(self, address: str, config: Config, hosts: Iterable[str] = ()) -> None:
        """Raises ConfigError for an address or a configuration that cannot be served."""
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(f"--faults wants HOST:PORT, as in 127.0.0.1:9405, not {address}")
        if not config.is_broker:
            raise ConfigError("--faults goes with a broker: requests to a controller pass no rule")
        if config.optional_str("authorizer.class.name"):
            raise ConfigError(
                "--faults goes without an authorizer (authorizer.class.name): what reaches its address would be "
                "asked for no permission"
            )
        self._names = frozenset(name.lower() for name in (*_LOOPBACK_NAMES, *hosts))
        if len(self._names) == len(_LOOPBACK_NAMES) and not is_loopback(host):
            raise ConfigError(
                f"--faults {address} can be reached from other machines, and asks for no password: give the name under "
                "which they reach it with --faults-host, or a loopback address"
            )
        self._host, self._port = host, int(port)
        self.faults = Faults()
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def make_dispatcher(self) -> MakeDispatcher:
        return partial(WatchedDispatcher, faults=self.faults, traffic=Traffic())

    @property
    def address(self) -> str:
        """`host:port`, after the start."""
        assert self._server is not None, "the server of fault rules is not started"
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._server.server_address[1]}"

    def start(self) -> None:
        """Take the address and serve it on a thread. Raises OSError."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            self._server = _Server(family, (self._host, self._port), partial(_Handler, self.faults, self._names))
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"--faults cannot take {self._host}:{self._port}: {reason}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="faults", daemon=True
        )
        self._thread.start()
        logger.warning("Fault rules are taken at http://%s/faults: what reaches it may break any request", self.address)

    def close(self) -> None:
        """Stop serving. The rules stay active."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._thread = None


class _Server(ThreadingHTTPServer):
    """Runs a thread for each of at most MOST_CONNECTIONS connections; a further connection is closed at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int], handler: Any) -> None:
        self.address_family = family
        self._places = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("A request to /faults from %s failed", client_address, exc_info=True)


class _Refused(Exception):
    """A request is refused, with a status and a reason."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class _InTime(io.RawIOBase):
    """Reads the bytes of a connection. It raises TimeoutError when the time for a request is over, even if a byte comes
    now and then."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        super().__init__()
        self._connection = connection
        self._seconds = seconds
        self._ends = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        # A timeout of 0 would make the socket non-blocking.
        self._connection.settimeout(max(0.001, self._ends - time.monotonic()))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(self._seconds)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request, and closes its connection."""

    server_version = "pykbroker"
    sys_version = ""
    timeout = _REQUEST_SECONDS

    def __init__(self, faults: Faults, names: frozenset[str], *connection: Any) -> None:
        self._faults = faults
        self._names = names
        self._has_read = False
        super().__init__(*connection)

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_InTime(self.connection, self.timeout))

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _answer(self, handle: Any) -> None:
        try:
            self._require_names()
            status, body = handle(urlsplit(self.path))
        except _Refused as refused:
            self._drain()
            status, body = refused.status, {"error": str(refused)}
        except FaultError as error:
            status, body = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        self._send(status, body)

    def _send(self, status: HTTPStatus, body: Any) -> None:
        data = b"" if body is None else json.dumps(body).encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def _drain(self) -> None:
        """Read the rest of a body. If a connection is closed with an unread body, it is reset, and the client does not
        receive the answer."""
        length = self.headers.get("Content-Length", "")
        if not self._has_read and length.isdecimal():
            self.rfile.read(min(int(length), _MOST_DRAINED_BYTES))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send an error of http.server itself."""
        status = HTTPStatus(code)
        self._send(status, {"error": message or status.phrase})

    def _require_names(self) -> None:
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or _name_of(hosts[0]) not in self._names:
            raise _Refused(
                HTTPStatus.FORBIDDEN, "the Host header names another host than those that --faults is reached under"
            )
        for origin in self.headers.get_all("Origin") or []:
            scheme, _, rest = origin.partition("://")
            if scheme not in ("http", "https") or _name_of(rest) not in self._names:
                raise _Refused(HTTPStatus.FORBIDDEN, "requests of web pages from elsewhere are refused (Origin)")

    def _get(self, url: Any) -> tuple[HTTPStatus, Any]:
        if url.path == "/faults":
            return HTTPStatus.OK, {"faults": [fault.to_json() for fault in self._faults]}
        fault, waits = self._fault(url.path)
        if waits:
            self._wait(fault, url.query)
        return HTTPStatus.OK, fault.to_json()

    def _post(self, url: Any) -> tuple[HTTPStatus, Any]:
        if url.path != "/faults":
            raise _Refused(HTTPStatus.NOT_FOUND, "rules are added at /faults")
        given = self._body()
        if not isinstance(given, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "a fault rule is a JSON object")
        return HTTPStatus.CREATED, self._faults.put(FaultRule.of(given)).to_json()

    def _delete(self, url: Any) -> tuple[HTTPStatus, Any]:
        if url.path == "/faults":
            self._faults.clear()
        else:
            fault, waits = self._fault(url.path)
            if waits:
                raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "a wait is a GET")
            fault.remove()
        return HTTPStatus.NO_CONTENT, None

    def _fault(self, path: str) -> tuple[Fault, bool]:
        match = _RULE.fullmatch(path)
        if match is None:
            raise _Refused(HTTPStatus.NOT_FOUND, "there are /faults, /faults/ID and /faults/ID/wait")
        fault = self._faults.find(int(match[1]))
        if fault is None:
            raise _Refused(HTTPStatus.NOT_FOUND, f"there is no fault {match[1]}")
        return fault, match[2] is not None

    def _wait(self, fault: Fault, query: str) -> None:
        asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=10))
        count = _number(asked.pop("count", "1"), "count", 1 << 31)
        timeout_ms = _number(asked.pop("timeout_ms", str(_DEFAULT_WAIT_MS)), "timeout_ms", LONGEST_WAIT_MS)
        if asked:
            raise _Refused(HTTPStatus.BAD_REQUEST, "a wait has count and timeout_ms")
        try:
            fault.wait_for(count, timeout_ms / 1000)
        except TimeoutError as error:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, str(error)) from None

    def _body(self) -> Any:
        if self.headers.get_content_type() != "application/json":
            raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a fault rule is sent as application/json")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or self.headers.get("Transfer-Encoding") is not None:
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "the Content-Length says how long the rule is")
        if int(length) > MOST_BODY_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a fault rule has at most {MOST_BODY_BYTES} bytes")
        self._has_read = True
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())
            raise _Refused(HTTPStatus.BAD_REQUEST, f"this is no JSON: {reason}") from None

    def log_message(self, format: str, *words: Any) -> None:
        logger.debug(format, *words)


def _name_of(host: str) -> str:
    """Return a host's name without its port, in the form for comparison."""
    name, bracket, _ = host.partition("]")
    return (name + bracket if bracket else host.partition(":")[0]).lower()


def _number(text: str, name: str, most: int) -> int:
    if not text.isdecimal() or len(text) > 12 or int(text) > most:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name} is a whole number up to {most}")
    return int(text)
