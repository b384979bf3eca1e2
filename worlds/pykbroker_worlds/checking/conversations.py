"""Requests and answers between applications and brokers about groups and transactions, read from bytes of connections.

Responsible for the requests that claims and stories need. Not responsible for what they mean (claims.py). Times are
virtual seconds, so wrong clocks of brokers change nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import DecodeError, ErrorCode
from pykbroker_wire.frame import FrameSplitter
from pykbroker_wire.headers import RequestHeader, decode_response
from pykbroker_wire.messages.consumer_protocol import ConsumerProtocolAssignment
from pykbroker_worlds.history.events import Place, place_name
from pykbroker_worlds.simulated.network import SimTransport

_READ: Final = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.SYNC_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
    }
)


@dataclass(slots=True)
class Commit:
    """An offset that an application has committed for one partition, with OffsetCommit or with a transaction; then
    `seconds` is when it asked for the end of the transaction. `error` is None as long as no answer has come."""

    seconds: float
    app: str
    group: str
    place: Place
    offset: int
    error: int | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """An application was told its partitions of a generation."""

    seconds: float
    app: str
    group: str
    generation: int
    places: frozenset[Place]


@dataclass(frozen=True, slots=True)
class Answered:
    """A line for the story: an answer that an application got about a group or a transaction, and its partitions."""

    seconds: float
    app: str
    text: str
    places: frozenset[Place] = frozenset()
    #: a commit of offsets that went well, of which the last one of several is enough
    is_commit: bool = False


class _Connection:
    """The two directions of one connection of an application."""

    def __init__(self) -> None:
        self.requests = FrameSplitter()
        self.answers = FrameSplitter()
        #: by correlation id: the API, its version, the request, and the commits that it asks for
        self.open: dict[int, tuple[int, int, Any, list[Commit]]] = {}
        self._is_lost = False

    def split(self, splitter: FrameSplitter, data: bytes) -> list[memoryview]:
        """Return the frames that `data` completes. After bytes that are no frames it returns none."""
        if self._is_lost:
            return []
        try:
            return splitter.feed(data)
        except DecodeError:
            self._is_lost = True
            return []


class Conversations:
    """An observer of the network (simulated/network.py), for the connections of applications."""

    def __init__(self, seconds: Callable[[], float], is_application: Callable[[str | None], bool]) -> None:
        """`seconds` returns virtual time, and `is_application` is True for the machine of an application."""
        self.commits: list[Commit] = []
        self.assignments: list[Assigned] = []
        self.answers: list[Answered] = []
        self._seconds = seconds
        self._is_application = is_application
        self._connections: dict[SimTransport, _Connection] = {}
        #: by transactional id: the offsets that the present transaction will commit
        self._in_transaction: dict[str, list[Commit]] = {}

    # -- the network --------------------------------------------------------------------------------------------------

    def sent(self, transport: SimTransport, data: bytes) -> None:
        machine = transport.runtime.machine
        if machine is None or not self._is_application(machine):
            return
        connection = self._connections.get(transport)
        if connection is None:
            self._connections = {known: one for known, one in self._connections.items() if not known.closed}
            connection = self._connections[transport] = _Connection()
        for frame in connection.split(connection.requests, data):
            if int.from_bytes(frame[:2], "big") in _READ:
                with suppress(DecodeError):  # it goes to the broker, which answers it
                    self._asked(machine, connection, frame)

    def arrived(self, transport: SimTransport, data: bytes) -> None:
        connection = self._connections.get(transport)
        if connection is None:
            return
        for frame in connection.split(connection.answers, data):
            found = connection.open.pop(int.from_bytes(frame[:4], "big", signed=True), None)
            if found is not None:
                key, version, request, commits = found
                assert transport.runtime.machine is not None
                with suppress(DecodeError):  # the client finds it too
                    _, answer = decode_response(key, version, frame)
                    self._answered(transport.runtime.machine, key, request, answer, commits)

    # -- messages -----------------------------------------------------------------------------------------------------

    def _asked(self, app: str, connection: _Connection, frame: memoryview) -> None:
        header, position = RequestHeader.decode(frame)
        request: Any
        request, _ = APIS[header.api_key].request.decode(bytes(frame), position, header.version)
        commits = []
        if header.api_key in (ApiKey.OFFSET_COMMIT, ApiKey.TXN_OFFSET_COMMIT):
            commits = [
                Commit(self._seconds(), app, request.group_id, place, partition.committed_offset)
                for place, partition in _partitions(request)
            ]
        elif header.api_key == ApiKey.END_TXN and request.committed:
            pending = self._in_transaction.get(request.transactional_id, [])
            commits = [replace(commit, seconds=self._seconds(), app=app) for commit in pending]
        if header.api_key != ApiKey.TXN_OFFSET_COMMIT:
            self.commits += commits
        connection.open[header.correlation_id] = header.api_key, header.version, request, commits

    def _answered(self, app: str, key: int, request: Any, answer: Any, commits: list[Commit]) -> None:
        match key:
            case ApiKey.SYNC_GROUP:
                places = frozenset() if answer.error_code else frozenset(_assigned(answer.assignment))
                if not answer.error_code:
                    group, generation = request.group_id, request.generation_id
                    self.assignments.append(Assigned(self._seconds(), app, group, generation, places))
                text = f"generation {request.generation_id} of group {request.group_id}"
                self._note(app, text, answer.error_code, f": it gets {_listed(places) or 'no partition'}", places)
            case ApiKey.HEARTBEAT:
                if answer.error_code:
                    self._note(app, f"heartbeat to group {request.group_id}", answer.error_code)
            case ApiKey.LEAVE_GROUP:
                self._note(app, f"leaves group {request.group_id}", answer.error_code)
            case ApiKey.OFFSET_COMMIT:
                errors = dict(_errors(answer))
                for commit in commits:
                    commit.error = errors.get(commit.place, 0)
                error, asked = _first_error(answer), frozenset(commit.place for commit in commits)
                text = f"commits {_offsets(commits)} of group {request.group_id}"
                self._note(app, text, error, "", asked, is_commit=not error)
            case ApiKey.TXN_OFFSET_COMMIT:
                error, asked = _first_error(answer), frozenset(commit.place for commit in commits)
                if not error:
                    self._in_transaction.setdefault(request.transactional_id, []).extend(commits)
                text = f"adds {_offsets(commits)} of group {request.group_id} to {request.transactional_id}"
                self._note(app, text, error, "", asked)
            case ApiKey.INIT_PRODUCER_ID:
                text = f"begins producer {request.transactional_id or 'without a transactional id'}"
                self._note(app, text, answer.error_code, f": id {answer.producer_id}:{answer.producer_epoch}")
                if not answer.error_code:
                    self._in_transaction.pop(request.transactional_id, None)
            case ApiKey.END_TXN:
                verb = "commits" if request.committed else "aborts"
                for commit in commits:
                    commit.error = answer.error_code
                if not answer.error_code:
                    self._in_transaction.pop(request.transactional_id, None)
                self._note(app, f"{verb} the transaction of {request.transactional_id}", answer.error_code)

    def _note(
        self,
        app: str,
        text: str,
        error: int,
        more: str = "",
        places: frozenset[Place] = frozenset(),
        *,
        is_commit: bool = False,
    ) -> None:
        end = f": {_error_name(error)}" if error else more
        self.answers.append(Answered(self._seconds(), app, text + end, places, is_commit))


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def _partitions(request: Any) -> Iterator[tuple[Place, Any]]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield (topic.name, partition.partition_index), partition


def _errors(answer: Any) -> Iterator[tuple[Place, int]]:
    for place, partition in _partitions(answer):
        yield place, partition.error_code


def _first_error(answer: Any) -> int:
    return next((code for _, code in _errors(answer) if code), 0)


def _offsets(commits: list[Commit]) -> str:
    return ", ".join(f"{place_name(commit.place)}@{commit.offset}" for commit in commits)


def _assigned(assignment: bytes) -> Iterator[Place]:
    # Empty bytes are the assignment of a member that gets nothing.
    if len(assignment) < 2:
        return
    version = min(int.from_bytes(assignment[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    decoded, _ = ConsumerProtocolAssignment.decode(assignment, 2, version)
    for topic in decoded.assigned_partitions:
        for partition in topic.partitions:
            yield topic.topic, partition


def _listed(places: frozenset[Place]) -> str:
    return ", ".join(place_name(place) for place in sorted(places))
