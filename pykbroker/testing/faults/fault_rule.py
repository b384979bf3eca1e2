"""One fault rule: the requests that it matches, and its effect on them. It is a value; its JSON has the same names.

Responsible for the validity of a rule: `FaultRule.of` raises FaultError with one line for an invalid one. Not
responsible for counting (rule_set.py) nor for applying it.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from random import Random
from types import UnionType
from typing import Any, Self

from pykbroker.testing.faults.named_parts import (
    NamedPart,
    field_types,
    names_partitions,
    names_topics,
    says_errors,
)
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import Message, TopLevel

#: A function that a test gives as an action.
Callback = Callable[["SeenRequest"], Mapping[str, Any] | None]
_ACTIONS = ("error", "drop", "disconnect", "change", "delay_ms", "carried_out")
#: No client waits longer than this.
LONGEST_DELAY_MS = 3_600_000
_LONGEST_TEXT = 1000
_MOST_CHANGES = 50
Scalar = str | int | float | bool | None


class FaultError(ValueError):
    """A rule that is not valid; the text is one line with the reason."""


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """The part of a request that rules use.

    `key`: the key of its API. `node`: the id of the broker that received it. `parts`: the topics and partitions in it.
    `between_brokers`: True if another broker sent it.
    """

    key: int
    version: int
    client_id: str | None
    node: int
    parts: tuple[NamedPart, ...]
    request: TopLevel
    between_brokers: bool = False

    @property
    def api(self) -> str:
        """The name of the API."""
        return APIS[self.key].name


@dataclass(frozen=True, slots=True)
class FaultRule:
    """Conditions, all of which must hold, and at most one action, which may have a delay.

    `api`: the name (`Produce`) or key of an API. `topic`, `partition`, `client_id`, `node` (an id): must be equal.
    `between_brokers`: match requests of other brokers, and not those of clients. `nth`: the first match on which the
    rule acts, counted from 1. `times`: the number of matches on which it acts; None for all, or for one if `nth` is
    given.

    `probability`: of the matches whose turn it is, the rule acts on this part, from above 0 to 1. `seed` chooses them:
    the same seed chooses the same matches, by their numbers.

    `error`: an ErrorCode. `drop`: send no answer; the connection stays. `disconnect`: close the connection. `change`:
    fields of the answer by their path (`responses.partition_responses.base_offset`). `delay_ms`: delay the answer, or
    the end of the connection. `carried_out`: the broker executes the request before it returns the error, drops the
    answer or disconnects. `callback`: a function of Python instead of an action. It gets the SeenRequest on a thread of
    the node, and returns the names and values of an action, for example `{"error": "REQUEST_TIMED_OUT"}`, or None; then
    the next rule is asked.
    """

    api: int | None = None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    node: int | None = None
    between_brokers: bool = False
    nth: int = 1
    times: int | None = None
    error: ErrorCode | None = None
    delay_ms: int = 0
    drop: bool = False
    disconnect: bool = False
    change: tuple[tuple[str, Scalar], ...] = ()
    carried_out: bool = False
    probability: float = 1.0
    seed: int = 0
    callback: Callback | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Make a rule from names and values of a test or of JSON; None counts as absent. Raises FaultError."""
        known = {one.name for one in fields(cls)}
        for name in given:
            if name not in known:
                raise FaultError(f"a fault rule has no {name!r}; it has {', '.join(sorted(known))}")
        said = {name: value for name, value in given.items() if value is not None}
        if not said:
            raise FaultError("a fault rule that says nothing would match every request: name at least an api")
        change = said.get("change", {})
        rule = cls(
            api=None if "api" not in said else api_key(said["api"]),
            topic=_text(said, "topic"),
            partition=_number(said, "partition", 0, 1 << 31),
            client_id=_text(said, "client_id"),
            node=_number(said, "node", 0, 1 << 31),
            between_brokers=_flag(said, "between_brokers"),
            nth=_number(said, "nth", 1, 1 << 62) or 1,
            times=_number(said, "times", 1, 1 << 62) or (1 if "nth" in said else None),
            error=_error(said.get("error")),
            delay_ms=_number(said, "delay_ms", 0, LONGEST_DELAY_MS) or 0,
            drop=_flag(said, "drop"),
            disconnect=_flag(said, "disconnect"),
            change=_change(change),
            carried_out=_flag(said, "carried_out"),
            probability=_probability(said.get("probability", 1.0)),
            seed=_number(said, "seed", 0, 1 << 62) or 0,
            callback=_callback(said.get("callback")),
        )
        rule._check()
        return rule

    def _check(self) -> None:
        actions = self._actions
        if len(actions) > 1:
            raise FaultError(f"a fault rule does one thing: {actions[0]} and {actions[1]} are two rules")
        if self.drop and self.delay_ms:
            raise FaultError("an answer that is dropped is not delayed as well")
        if self.carried_out and actions not in (["error"], ["drop"], ["disconnect"]):
            raise FaultError("carried_out goes with error, drop or disconnect; anything else is carried out anyway")
        if self.callback is not None and self.delay_ms:
            raise FaultError("a callback returns delay_ms itself")
        if self.api is None:
            if self.change:
                raise FaultError("change needs an api: the fields of each answer are its own")
            return
        name = APIS[self.api].name
        if self.topic is not None and not names_topics(self.api):
            raise FaultError(f"{name} names no topics, so that no request would match")
        if self.partition is not None and not names_partitions(self.api):
            raise FaultError(f"{name} names no partitions, so that no request would match")
        if self.error is not None and not says_errors(self.api):
            raise FaultError(f"an answer of {name} has no place for an error that this broker knows of")
        for path, value in self.change:
            _check_path(self.api, path, value)

    def chosen(self, seen: SeenRequest) -> tuple[NamedPart, ...] | None:
        """Return the parts of the request to which the rule applies; these are all parts if the rule names no topic and
        no partition. None if the rule does not match the request."""
        if (
            (self.api is not None and self.api != seen.key)
            or (self.client_id is not None and self.client_id != seen.client_id)
            or (self.node is not None and self.node != seen.node)
            or self.between_brokers != seen.between_brokers
        ):
            return None
        if not self.names_parts:
            return seen.parts
        return (
            tuple(
                part
                for part in seen.parts
                if (self.topic is None or part.topic == self.topic)
                and (self.partition is None or part.partition == self.partition)
            )
            or None
        )

    @property
    def names_parts(self) -> bool:
        """True if the rule names a topic or a partition."""
        return self.topic is not None or self.partition is not None

    @property
    def acts(self) -> bool:
        """True if the rule does more than count."""
        return bool(self._actions) or self.delay_ms > 0

    @property
    def _actions(self) -> list[str]:
        """The actions of the rule by their names, without the delay. A valid rule has at most one."""
        wanted = {
            "error": self.error is not None,
            "drop": self.drop,
            "disconnect": self.disconnect,
            "change": bool(self.change),
            "callback": self.callback is not None,
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]

    def is_turn(self, matches: int) -> bool:
        """Return True if the rule acts on its match number `matches`, counted from 1."""
        if matches < self.nth or (self.times is not None and matches >= self.nth + self.times):
            return False
        if self.probability == 1:
            return True
        # Chance of its own for each match, so that the choice does not depend on the order of other rules.
        chance = Random(f"{self.seed}/{matches}")  # noqa: S311  # repeatable on purpose
        return chance.random() < self.probability

    def answered(self, seen: SeenRequest) -> FaultRule | None:
        """Return the rule whose action applies to a request: the rule itself, or what its callback returns. None if the
        callback returns None. Raises FaultError for a callback that returns no action, and what it raises itself."""
        if self.callback is None:
            return self
        given = self.callback(seen)
        if given is None:
            return None
        unknown = (
            "nothing"
            if not isinstance(given, Mapping)
            else next((name for name in given if name not in _ACTIONS), None)
        )
        if unknown is not None or not given:
            raise FaultError(f"a callback returns None or some of {', '.join(_ACTIONS)}, not {_shown(given)}")
        return replace(FaultRule.of({"api": seen.key, **given}), topic=self.topic, partition=self.partition)

    def to_json(self) -> dict[str, Any]:
        """Return the argument for `of`, without fields that have their default."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if value == one.default:
                continue
            if one.name == "api":
                value = APIS[value].name
            elif isinstance(value, ErrorCode):
                value = value.name
            elif one.name == "change":
                value = dict(value)
            elif one.name == "callback":
                value = getattr(value, "__name__", repr(value))
            found[one.name] = value
        return found


def api_key(given: Any) -> int:
    """Return the key of an API from its name or its key. Raises FaultError."""
    if isinstance(given, int) and not isinstance(given, bool):
        if given in APIS:
            return int(given)
    elif isinstance(given, str):
        wanted = given.replace("_", "").lower()
        for key, api in APIS.items():
            if api.name.lower() == wanted:
                return int(key)
    raise FaultError(f"there is no API {_shown(given)}")


def _error(given: Any) -> ErrorCode | None:
    if given is None:
        return None
    code: ErrorCode | None = None
    if isinstance(given, str):
        code = ErrorCode.__members__.get(given)
    elif isinstance(given, int) and not isinstance(given, bool) and given in set(ErrorCode):
        code = ErrorCode(given)
    if code is None:
        raise FaultError(f"there is no error {_shown(given)}; errors have the names of Kafka's protocol, in capitals")
    if code is ErrorCode.NONE:
        raise FaultError("NONE is no error")
    return code


def _text(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, str) or len(value) > _LONGEST_TEXT):
        raise FaultError(f"{name} is a text of at most {_LONGEST_TEXT} characters, not {_shown(value)}")
    return value


def _number(given: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    value = given.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high):
        raise FaultError(f"{name} is a whole number from {low} to {high}, not {_shown(value)}")
    return value


def _flag(given: Mapping[str, Any], name: str) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        raise FaultError(f"{name} is true or false, not {_shown(value)}")
    return value


def _probability(given: Any) -> float:
    if not isinstance(given, int | float) or isinstance(given, bool) or not 0 < given <= 1:
        raise FaultError(f"probability is a number above 0 and up to 1, not {_shown(given)}")
    return float(given)


def _callback(given: Any) -> Callback | None:
    if given is not None and not callable(given):
        raise FaultError("callback is a function of Python, so it does not go over HTTP")
    found: Callback | None = given
    return found


def _change(given: Any) -> tuple[tuple[str, Scalar], ...]:
    if not isinstance(given, Mapping) or len(given) > _MOST_CHANGES:
        raise FaultError(f"change has paths of fields and their new values, at most {_MOST_CHANGES}")
    for path, value in given.items():
        if not isinstance(path, str) or not isinstance(value, str | int | float | None):
            raise FaultError(f"change has paths of fields and their new values, not {_shown(path)}: {_shown(value)}")
    return tuple(given.items())


def _check_path(key: int, path: str, value: Scalar) -> None:
    """Raise FaultError unless the path leads to a field of the answer that may have this value."""
    cls: type[Message] = APIS[key].response
    *outer, last = path.split(".")
    for name in outer:
        inner = _message_class(field_types(cls).get(name))
        if inner is None:
            raise FaultError(_no_field(key, path, name, cls))
        cls = inner
    hint = field_types(cls).get(last)
    if hint is None:
        raise FaultError(_no_field(key, path, last, cls))
    allowed = typing.get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if _message_class(hint) is not None or type(value) not in allowed:
        raise FaultError(f"{path} of an answer of {APIS[key].name} cannot be {_shown(value)}")


def _no_field(key: int, path: str, name: str, cls: type[Message]) -> str:
    return f"{path} is no field of an answer of {APIS[key].name}: beside {name!r} stand {', '.join(field_types(cls))}"


def _message_class(hint: Any) -> type[Message] | None:
    """Return the class of a field that is a struct or a list of structs, or None."""
    for one in (hint, *typing.get_args(hint)):
        if isinstance(one, type) and issubclass(one, Message):
            return one
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
