"""The places where the requests of each API name topics and partitions, and where its answers have the error of each.

Pure: messages in, values out. An API without a row here has its error in the `error_code` of the whole answer, if the
answer has this field. Some APIs (Metadata, Fetch) are in `ALWAYS_CARRIED_OUT`: the broker executes their requests, and
a refused part is replaced in the answer.
"""

from __future__ import annotations

import copy
import sys
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import EncodeError, Message, TopLevel

_MOST_VERSIONS = 1 << 15
#: In `Level.keys`, stands for an element that has no fields because it is a topic's name or a partition's index.
ITSELF = ""


@dataclass(frozen=True, slots=True)
class Level:
    """`asked`: a list in the request. `answered`: the list in the answer with an element for each of its elements.

    `keys`: pairs of a field of the request's element and the equal field of the answer's element.
    """

    asked: str
    answered: str
    keys: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Parts:
    """The levels of one API in versions `first` to `last`, the outermost first.

    `topic_at`: the level whose elements name a topic, or None; `partition_at`: the same for a partition. `blank`: the
    fields that are not the default in an element of the last level that has an error.
    """

    levels: tuple[Level, ...]
    topic_at: int | None = None
    partition_at: int | None = None
    first: int = 0
    last: int = _MOST_VERSIONS
    code: str = "error_code"
    blank: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamedPart:
    """A topic, a partition or another element in a request: its elements from the outermost level to the last.

    `topic`: the name of the topic, or None if the topic is unknown or the request names no topic.
    """

    elements: tuple[Any, ...]
    topic: str | None
    partition: int | None


def _names(*pairs: str) -> tuple[tuple[str, str], ...]:
    """Return pairs of fields: `"name"` if it has the same name in both messages, else `"partition:partition_index"`."""
    found = []
    for pair in pairs:
        asked, colon, answered = pair.partition(":")
        found.append((asked, answered if colon else asked))
    return tuple(found)


def _topics(
    asked: str = "topics",
    answered: str = "topics",
    *keys: str,
    partitions: Level | None = None,
    **rest: Any,
) -> Parts:
    topics = Level(asked, answered, _names(*(keys or ("name",))))
    if partitions is None:
        return Parts((topics,), topic_at=0, **rest)
    return Parts((topics, partitions), topic_at=0, partition_at=1, **rest)


def _list(asked: str, answered: str, *keys: str, **rest: Any) -> Parts:
    return Parts((Level(asked, answered, _names(*keys)),), **rest)


_BY_PARTITION_INDEX = Level("partitions", "partitions", _names("partition_index"))
_INDEXES = Level("partition_indexes", "partitions", _names(":partition_index"))
_TXN_PARTITIONS = Level("partitions", "results_by_partition", _names(":partition_index"))
#: The five requests to share coordinators have one shape.
_SHARE_STATES = _topics(
    "topics", "results", "topic_id", partitions=Level("partitions", "partitions", _names("partition"))
)
_NO_OFFSET = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
_NO_RECORDS = {"records": b""}
_RESOURCE = ("resource_type", "resource_name")

_PARTS: dict[int, tuple[Parts, ...]] = {
    ApiKey.PRODUCE: (
        _topics(
            "topic_data",
            "responses",
            "name",
            "topic_id",
            partitions=Level("partition_data", "partition_responses", _names("index")),
            blank={"base_offset": -1},
        ),
    ),
    ApiKey.FETCH: (
        _topics(
            "topics",
            "responses",
            "topic",
            "topic_id",
            partitions=Level("partitions", "partitions", _names("partition:partition_index")),
            blank={"high_watermark": -1, "records": b""},
        ),
    ),
    ApiKey.LIST_OFFSETS: (_topics(partitions=_BY_PARTITION_INDEX, blank={"timestamp": -1, "offset": -1}),),
    ApiKey.METADATA: (_topics("topics", "topics", "name", "topic_id"),),
    ApiKey.OFFSET_COMMIT: (_topics("topics", "topics", "name", "topic_id", partitions=_BY_PARTITION_INDEX),),
    ApiKey.OFFSET_FETCH: (
        _topics(partitions=_INDEXES, last=7, blank=_NO_OFFSET),
        Parts(
            (
                Level("groups", "groups", _names("group_id")),
                Level("topics", "topics", _names("name", "topic_id")),
                _INDEXES,
            ),
            topic_at=1,
            partition_at=2,
            first=8,
            blank=_NO_OFFSET,
        ),
    ),
    ApiKey.FIND_COORDINATOR: (
        _list("coordinator_keys", "coordinators", ":key", first=4, blank={"node_id": -1, "port": -1}),
    ),
    ApiKey.DESCRIBE_GROUPS: (_list("groups", "groups", ":group_id"),),
    ApiKey.DELETE_GROUPS: (_list("groups_names", "results", ":group_id"),),
    ApiKey.CREATE_TOPICS: (_topics(),),
    ApiKey.DELETE_TOPICS: (
        _topics("topic_names", "responses", ":name", last=5),
        _topics("topics", "responses", "name", "topic_id", first=6),
    ),
    ApiKey.DELETE_RECORDS: (_topics(partitions=_BY_PARTITION_INDEX, blank={"low_watermark": -1}),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        _topics("topics", "topics", "topic", partitions=Level("partitions", "partitions", _names("partition"))),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        _topics(
            "v3_and_below_topics",
            "results_by_topic_v3_and_below",
            partitions=_TXN_PARTITIONS,
            last=3,
            code="partition_error_code",
        ),
        Parts(
            (
                Level("transactions", "results_by_transaction", _names("transactional_id")),
                Level("topics", "topic_results", _names("name")),
                _TXN_PARTITIONS,
            ),
            topic_at=1,
            partition_at=2,
            first=4,
            code="partition_error_code",
        ),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (_topics("topics", "topics", "name", "topic_id", partitions=_BY_PARTITION_INDEX),),
    ApiKey.DESCRIBE_CONFIGS: (_list("resources", "results", *_RESOURCE),),
    ApiKey.ALTER_CONFIGS: (_list("resources", "responses", *_RESOURCE),),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (_list("resources", "responses", *_RESOURCE),),
    ApiKey.CREATE_PARTITIONS: (_topics("topics", "results"),),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (_topics("topics", "responses", partitions=_BY_PARTITION_INDEX),),
    ApiKey.OFFSET_DELETE: (_topics(partitions=_BY_PARTITION_INDEX),),
    ApiKey.DESCRIBE_PRODUCERS: (_topics(partitions=_INDEXES),),
    ApiKey.DESCRIBE_TRANSACTIONS: (_list("transactional_ids", "transaction_states", ":transactional_id"),),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (_list("group_ids", "groups", ":group_id"),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_topics(),),
    ApiKey.SHARE_FETCH: (
        _topics("topics", "responses", "topic_id", partitions=_BY_PARTITION_INDEX, blank=_NO_RECORDS),
    ),
    ApiKey.SHARE_ACKNOWLEDGE: (_topics("topics", "responses", "topic_id", partitions=_BY_PARTITION_INDEX),),
    ApiKey.SHARE_GROUP_DESCRIBE: (_list("group_ids", "groups", ":group_id"),),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (_SHARE_STATES,),
    ApiKey.READ_SHARE_GROUP_STATE: (_SHARE_STATES,),
    ApiKey.WRITE_SHARE_GROUP_STATE: (_SHARE_STATES,),
    ApiKey.DELETE_SHARE_GROUP_STATE: (_SHARE_STATES,),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (_SHARE_STATES,),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
        Parts(
            (
                Level("groups", "groups", _names("group_id")),
                Level("topics", "topics", _names("topic_name")),
                Level("partitions", "partitions", _names(":partition_index")),
            ),
            topic_at=1,
            partition_at=2,
            blank={"start_offset": -1},
        ),
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (_topics("topics", "responses", "topic_name", partitions=_BY_PARTITION_INDEX),),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (_topics("topics", "responses", "topic_name"),),
}
#: The places for errors that apply to no single topic, in answers where the place is neither the answer as a whole nor
#: each element of the last level.
_WHOLES: dict[int, Parts] = {
    ApiKey.OFFSET_FETCH: Parts((Level("groups", "groups", _names("group_id")),), first=8),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Parts((Level("groups", "groups", _names("group_id")),)),
}
_SHARE_SESSION_ERRORS = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    }
)
#: In answers of these APIs, only the errors here (of a session, a group, the cluster) apply to the whole answer. Others
#: apply to topics or partitions.
_WHOLE_ERRORS: dict[int, frozenset[ErrorCode]] = {
    ApiKey.FETCH: frozenset(
        {
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        }
    ),
    ApiKey.METADATA: frozenset({ErrorCode.REBOOTSTRAP_REQUIRED}),
    ApiKey.SHARE_FETCH: _SHARE_SESSION_ERRORS,
    ApiKey.SHARE_ACKNOWLEDGE: _SHARE_SESSION_ERRORS,
}
#: The broker executes requests of these APIs, and refused parts are replaced in its answer. Otherwise an answer of
#: Metadata would have no brokers, and the two sides of a fetch session would have different partitions. Only ShareFetch
#: has a side effect: what it acquires in a refused part stays locked, as when an answer is lost.
ALWAYS_CARRIED_OUT = frozenset({ApiKey.METADATA, ApiKey.FETCH, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.SHARE_FETCH})
#: The fields that are not the default in an answer that is an error as a whole.
_BLANK_ANSWER: dict[int, Mapping[str, Any]] = {
    ApiKey.INIT_PRODUCER_ID: {"producer_id": -1, "producer_epoch": -1},
    ApiKey.JOIN_GROUP: {"generation_id": -1, "protocol_name": "", "leader": ""},
    ApiKey.FIND_COORDINATOR: {"node_id": -1, "port": -1},
}


def parts_of(key: int, version: int) -> Parts | None:
    """Return the places where this version of an API names its parts. None if it names no parts, or if only the whole
    answer has an error."""
    return next((parts for parts in _PARTS.get(key, ()) if parts.first <= version <= parts.last), None)


def whole_of(key: int, version: int) -> Parts | None:
    """Return the place of an error that applies to the whole request, if the answer has a separate place for it."""
    parts = _WHOLES.get(key)
    return parts if parts is not None and version >= parts.first else None


def is_of_the_whole(key: int, code: ErrorCode) -> bool:
    """Return True if an answer with both places has this error as a whole, and False if it has it in each part."""
    return key not in _WHOLE_ERRORS or code in _WHOLE_ERRORS[key]


def names_topics(key: int) -> bool:
    """Return True if requests of any version name topics."""
    return any(parts.topic_at is not None for parts in _PARTS.get(key, ()))


def names_partitions(key: int) -> bool:
    return any(parts.partition_at is not None for parts in _PARTS.get(key, ()))


def says_errors(key: int) -> bool:
    """Return True if an answer in the newest version can contain an error."""
    return parts_of(key, APIS[key].max_version) is not None or has_code(key, APIS[key].max_version)


@cache
def has_code(key: int, version: int) -> bool:
    """Return True if the answer as a whole has an `error_code` in this version."""
    response = APIS[key].response
    if "error_code" not in response.__slots__:
        return False
    said = response()
    said.error_code = int(ErrorCode.UNKNOWN_SERVER_ERROR)  # type: ignore[attr-defined]
    try:
        body = b"".join(said.encode(version))
    except EncodeError:
        return False
    again, _ = response.decode(memoryview(body), 0, version)
    return bool(getattr(again, "error_code", 0))


def parts_in(
    key: int, version: int, request: TopLevel, name_of: typing.Callable[[bytes], str | None]
) -> list[NamedPart]:
    """Return all parts of a request. `name_of`: a function from the id of a topic to its name."""
    parts = parts_of(key, version)
    return [] if parts is None else parts_at(parts, request, name_of)


def parts_at(parts: Parts, request: TopLevel, name_of: typing.Callable[[bytes], str | None]) -> list[NamedPart]:
    """Return the parts of a request at these levels."""
    found: list[NamedPart] = []

    def descend(message: Any, depth: int, elements: tuple[Any, ...], topic: str | None) -> None:
        level = parts.levels[depth]
        for element in getattr(message, level.asked) or ():
            here, partition = topic, None
            if depth == parts.topic_at:
                here = _topic_name(element, level, name_of)
            if depth == parts.partition_at:
                partition = element if isinstance(element, int) else getattr(element, level.keys[0][0])
            path = (*elements, element)
            if depth + 1 == len(parts.levels):
                found.append(NamedPart(path, here, partition))
            else:
                descend(element, depth + 1, path, here)

    descend(request, 0, (), None)
    return found


def _topic_name(element: Any, level: Level, name_of: typing.Callable[[bytes], str | None]) -> str | None:
    if isinstance(element, str):
        return element
    field_of_name = level.keys[0][0]
    name: str | None = None if field_of_name == "topic_id" else getattr(element, field_of_name)
    return name or name_of(getattr(element, "topic_id", b""))


def without(parts: Parts, request: Any, refused: Iterable[NamedPart]) -> Any | None:
    """Return a copy of the request without these parts, or None if no part is left. The request is not changed."""
    gone = {tuple(map(id, part.elements)) for part in refused}

    def rest(message: Any, depth: int, path: tuple[int, ...]) -> Any | None:
        level = parts.levels[depth]
        left = []
        for element in getattr(message, level.asked) or ():
            here = (*path, id(element))
            if depth + 1 < len(parts.levels):
                element = rest(element, depth + 1, here)
                if element is not None:
                    left.append(element)
            elif here not in gone:
                left.append(element)
        if not left:
            return None
        shorter = copy.copy(message)
        setattr(shorter, level.asked, left)
        return shorter

    return rest(request, 0, ())


def put_errors(parts: Parts, response: Any, refused: Iterable[NamedPart], code: int) -> Any:
    """Return the answer with `code` for these parts instead of their results. It is a copy, because handlers may use
    one message for several answers."""
    answer = copy.copy(response)
    last = len(parts.levels) - 1
    for part in refused:
        message = answer
        for depth, level in enumerate(parts.levels):
            answered = list(getattr(message, level.answered))
            setattr(message, level.answered, answered)
            element_class = _element_class(type(message), level.answered)
            names = part_names(part, level, depth)
            at = next((at for at, one in enumerate(answered) if is_about(one, names)), None)
            if at is None:
                at = len(answered)
                answered.append(element_class(**names))
            elif depth == last:
                # The answer's element may have more names than the request's: a topic's name besides its id.
                names = {name: getattr(answered[at], name) for name in names}
            if depth == last:
                answered[at] = element_class(**{**parts.blank, **names, parts.code: code})
            else:
                answered[at] = copy.copy(answered[at])
            message = answered[at]
    return answer


def part_names(part: NamedPart, level: Level, depth: int) -> dict[str, Any]:
    """Return the fields of the answer's element for this part, and their values."""
    element = part.elements[depth]
    return {said: element if asked == ITSELF else getattr(element, asked) for asked, said in level.keys}


def is_about(one: Any, names: Mapping[str, Any]) -> bool:
    """Return True if an element of an answer has these names. An answer may have only the name or only the id of a
    topic."""
    said = [(getattr(one, name), wanted) for name, wanted in names.items()]
    return any(value == wanted and _is_said(value) for value, wanted in said) and all(
        value == wanted or not (_is_said(value) and _is_said(wanted)) for value, wanted in said
    )


def _is_said(value: Any) -> bool:
    return value is not None and value != "" and not (isinstance(value, bytes) and not any(value))


def refusal(key: int, code: int) -> Any:
    """Return an answer that is an error as a whole."""
    response: Any = APIS[key].response()
    for name, value in _BLANK_ANSWER.get(key, {}).items():
        setattr(response, name, value)
    response.error_code = code
    return response


_FIELD_TYPES: dict[str, dict[str, Any]] = {}


def field_types(cls: type[Message]) -> dict[str, Any]:
    """Return the fields of a message class with their annotations."""
    name = f"{cls.__module__}.{cls.__qualname__}"
    found = _FIELD_TYPES.get(name)
    if found is None:
        hints = typing.get_type_hints(cls.__init__, vars(sys.modules[cls.__module__]))
        found = _FIELD_TYPES[name] = {field: hint for field, hint in hints.items() if field != "return"}
    return found


def _element_class(cls: type[Message], name: str) -> Any:
    (element,) = typing.get_args(field_types(cls)[name])
    return element


def error_codes(message: Message) -> list[int]:
    """Return the error codes of an answer, each once and without 0, in the order of the answer."""
    found: dict[int, None] = {}

    def look(one: Message) -> None:
        for name in one.__slots__:
            value = getattr(one, name)
            if isinstance(value, list):
                for element in value:
                    if not isinstance(element, Message):
                        break
                    look(element)
            elif isinstance(value, Message):
                look(value)
            elif value and name.endswith("error_code"):
                found[value] = None

    look(message)
    return list(found)
