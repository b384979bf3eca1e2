"""The requests and answers of the server of fault rules: JSON over HTTP, without sockets.

    GET    /faults                              every rule, with its counts
    POST   /faults                              add one: the JSON of FaultRule; 201 and the rule with its id
    DELETE /faults                              remove all
    GET    /faults/ID                           one rule
    DELETE /faults/ID                           remove it
    GET    /faults/ID/wait?count=1&timeout_ms=  wait until that many requests have matched; 408 when they have not
    GET    /clock                               the milliseconds by which the clock that clients feel is ahead
    POST   /clock                               move it: {"advance": "45s"}, and "wall_clock": true if timestamps follow
    POST   /groups/expire                       end one session: {"group_id": "billing", "member": "ID"}; 204

An error is `{"error": "one line"}`. Responsible for the check of callers: the Host header of a request, and its Origin
header if it has one, must have a name of loopback or a name that was given. So no web page can send requests through a
browser by DNS rebinding. Not responsible for connections and their bounds (faults_server.py).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pykbroker.net.http_server import HttpRequest, HttpResponse
from pykbroker.testing.clock import Clock, ClockError
from pykbroker.testing.faults.fault_rule import FaultError, FaultRule
from pykbroker.testing.faults.rule_set import Fault, Faults
from pykbroker.testing.groups import no_session

MOST_BODY_BYTES = 64 * 1024
LONGEST_WAIT_MS = 600_000
_DEFAULT_WAIT_MS = 60_000
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_PLACES = "there are /faults, /faults/ID, /faults/ID/wait, /clock and /groups/expire"
_METHODS = ("GET", "POST", "DELETE")
_RULE = re.compile(r"/faults/([0-9]{1,12})(/wait)?")


class _Refused(Exception):
    """A request is refused, with a status and a reason."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def json_response(status: int, body: Any) -> HttpResponse:
    parts = [] if body is None else [json.dumps(body) + "\n"]
    headers = [
        ("content-length", str(sum(map(len, parts)))),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
    ]
    return HttpResponse(status, parts, "application/json", headers if status != HTTPStatus.NO_CONTENT else headers[1:])


def json_refusal(status: int, reason: str) -> HttpResponse:
    """Return the response to bytes that are no request of HTTP."""
    return json_response(status, {"error": " ".join(reason.split())})


class FaultsApi:
    """Answers requests about a set of rules, a clock and sessions of groups. `end_session` is called on a thread, with
    the ids of a group and a member, and returns False if there is no such session. `names`: the names under which other
    machines reach the server."""

    def __init__(
        self, faults: Faults, clock: Clock, end_session: Callable[[str, str], bool], names: Iterable[str] = ()
    ) -> None:
        self.faults = faults
        self._clock = clock
        self._end_session = end_session
        self._names = frozenset(name.lower() for name in (*LOOPBACK_NAMES, *names))

    @property
    def has_own_names(self) -> bool:
        """True if one of the names is not a name of loopback."""
        return len(self._names) > len(LOOPBACK_NAMES)

    async def answer(self, request: HttpRequest) -> HttpResponse:
        """Answer one request; a request that is refused has an answer too."""
        try:
            self._require_names(request.headers)
            status, body = await self._answered(request)
        except _Refused as refused:
            status, body = refused.status, {"error": str(refused)}
        except (FaultError, ClockError) as error:
            status, body = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        return json_response(status, body)

    def _require_names(self, headers: dict[str, str]) -> None:
        if _name_of(headers.get("host", "")) not in self._names:
            raise _Refused(
                HTTPStatus.FORBIDDEN, "the Host header names another host than those that --faults is reached under"
            )
        origin = headers.get("origin")
        if origin is not None:
            scheme, _, rest = origin.partition("://")
            # Several Origin headers come as one value with a comma, which is the name of no host.
            if scheme not in ("http", "https") or "," in rest or _name_of(rest) not in self._names:
                raise _Refused(HTTPStatus.FORBIDDEN, "requests of web pages from elsewhere are refused (Origin)")

    async def _answered(self, request: HttpRequest) -> tuple[HTTPStatus, Any]:
        try:
            url = urlsplit(request.target)
        except ValueError:
            raise _Refused(HTTPStatus.NOT_FOUND, _PLACES) from None
        match request.method:
            case _ if url.path == "/clock":
                return await self._clocked(request)
            case _ if url.path == "/groups/expire":
                return await self._expired(request)
            case "POST":
                return self._post(url.path, request)
            case "DELETE":
                return self._delete(url.path)
            case "GET":
                return await self._get(url.path, url.query)
        raise _Refused(
            HTTPStatus.NOT_IMPLEMENTED, f"{request.method[:20]} is not one of the methods {', '.join(_METHODS)}"
        )

    async def _clocked(self, request: HttpRequest) -> tuple[HTTPStatus, Any]:
        if request.method not in ("GET", "POST"):
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "a clock has GET and POST")
        if request.method == "POST":
            given = _json_of(request)
            if not isinstance(given, dict) or not {"advance"} <= given.keys() <= {"advance", "wall_clock"}:
                raise _Refused(HTTPStatus.BAD_REQUEST, 'a clock is moved by {"advance": "45s"}')
            wall_clock = given.get("wall_clock", False)
            if not isinstance(wall_clock, bool):
                raise _Refused(HTTPStatus.BAD_REQUEST, "wall_clock is true or false")
            # It waits for the loops of nodes.
            await asyncio.to_thread(self._clock.advance, given["advance"], wall_clock=wall_clock)
        return HTTPStatus.OK, {"advanced_ms": round(self._clock.advanced.total_seconds() * 1000)}

    async def _expired(self, request: HttpRequest) -> tuple[HTTPStatus, Any]:
        if request.method != "POST":
            raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "a session is ended by a POST")
        match _json_of(request):
            case {"group_id": str(group_id), "member": str(member_id), **rest} if not rest:
                pass
            case _:
                raise _Refused(HTTPStatus.BAD_REQUEST, 'a session is ended by {"group_id": "billing", "member": "ID"}')
        if not await asyncio.to_thread(self._end_session, group_id, member_id):
            raise _Refused(HTTPStatus.NOT_FOUND, " ".join(no_session(group_id, member_id).split()))
        return HTTPStatus.NO_CONTENT, None

    async def _get(self, path: str, query: str) -> tuple[HTTPStatus, Any]:
        if path == "/faults":
            return HTTPStatus.OK, {"faults": [fault.to_json() for fault in self.faults]}
        fault, waits = self._fault(path)
        if waits:
            await _wait(fault, query)
        return HTTPStatus.OK, fault.to_json()

    def _post(self, path: str, request: HttpRequest) -> tuple[HTTPStatus, Any]:
        if path != "/faults":
            raise _Refused(HTTPStatus.NOT_FOUND, "rules are added at /faults")
        given = _json_of(request)
        if not isinstance(given, dict):
            raise _Refused(HTTPStatus.BAD_REQUEST, "a fault rule is a JSON object")
        return HTTPStatus.CREATED, self.faults.put(FaultRule.of(given)).to_json()

    def _delete(self, path: str) -> tuple[HTTPStatus, Any]:
        if path == "/faults":
            self.faults.clear()
        else:
            fault, waits = self._fault(path)
            if waits:
                raise _Refused(HTTPStatus.METHOD_NOT_ALLOWED, "a wait is a GET")
            fault.remove()
        return HTTPStatus.NO_CONTENT, None

    def _fault(self, path: str) -> tuple[Fault, bool]:
        match = _RULE.fullmatch(path)
        if match is None:
            raise _Refused(HTTPStatus.NOT_FOUND, _PLACES)
        fault = self.faults.find(int(match[1]))
        if fault is None:
            raise _Refused(HTTPStatus.NOT_FOUND, f"there is no fault {match[1]}")
        return fault, match[2] is not None


async def _wait(fault: Fault, query: str) -> None:
    try:
        asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=10))
    except ValueError:
        asked = {"": ""}
    count = _number(asked.pop("count", "1"), "count", 1 << 31)
    timeout_ms = _number(asked.pop("timeout_ms", str(_DEFAULT_WAIT_MS)), "timeout_ms", LONGEST_WAIT_MS)
    if asked:
        raise _Refused(HTTPStatus.BAD_REQUEST, "a wait has count and timeout_ms")
    try:
        await fault.wait_for_async(count, timeout_ms / 1000)
    except TimeoutError as error:
        raise _Refused(HTTPStatus.REQUEST_TIMEOUT, str(error)) from None


def _json_of(request: HttpRequest) -> Any:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a request is sent as application/json")
    if request.body is None:
        raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a request has at most {MOST_BODY_BYTES} bytes")
    try:
        return json.loads(request.body)
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise _Refused(HTTPStatus.BAD_REQUEST, f"this is no JSON: {reason}") from None


def _name_of(host: str) -> str:
    """Return a host's name without its port, in the form for comparison."""
    name, bracket, _ = host.partition("]")
    return (name + bracket if bracket else host.partition(":")[0]).lower()


def _number(text: str, name: str, most: int) -> int:
    if not text.isdecimal() or len(text) > 12 or int(text) > most:
        raise _Refused(HTTPStatus.BAD_REQUEST, f"{name} is a whole number up to {most}")
    return int(text)
