"""The effect of a rule on an answer: errors in their places, and other values in fields. Pure, on decoded messages."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pykbroker.testing.faults.fault_rule import FaultRule, SeenRequest
from pykbroker.testing.faults.named_parts import (
    ALWAYS_CARRIED_OUT,
    Level,
    NamedPart,
    Parts,
    has_code,
    is_about,
    is_of_the_whole,
    part_names,
    parts_at,
    parts_of,
    put_errors,
    refusal,
    whole_of,
    without,
)
from pykbroker_wire.apis import APIS
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.primitives import Message


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """The answer to a request that fails with an error.

    `rest`: the request that the broker executes nevertheless, or None. `parts`: the parts that get the error in the
    answer, at `where`; if `where` is None, the answer as a whole gets the error.
    """

    code: ErrorCode
    rest: Any | None
    where: Parts | None
    parts: tuple[NamedPart, ...]

    def answer(self, key: int, response: Any | None) -> Any:
        """Return the answer for the client. `response`: the broker's answer to `rest`, or None."""
        if self.where is None:
            return refusal(key, self.code)
        if response is None:
            response = APIS[key].response()
        return put_errors(self.where, response, self.parts, self.code)


def refused(rule: FaultRule, seen: SeenRequest, chosen: tuple[NamedPart, ...]) -> ErrorAnswer | None:
    """Return the answer that refuses the request, or None if an answer of this version has no place for the error."""
    code = rule.error
    assert code is not None
    where = parts_of(seen.key, seen.version)
    if not rule.names_parts and is_of_the_whole(seen.key, code):
        rest = seen.request if rule.carried_out else None
        whole = whole_of(seen.key, seen.version)
        if whole is not None:
            return ErrorAnswer(code, rest, whole, tuple(parts_at(whole, seen.request, lambda _: None)))
        if has_code(seen.key, seen.version):
            return ErrorAnswer(code, rest, None, ())
    if where is None or not chosen:
        return None
    if rule.carried_out or seen.key in ALWAYS_CARRIED_OUT:
        return ErrorAnswer(code, seen.request, where, chosen)
    return ErrorAnswer(code, without(where, seen.request, chosen), where, chosen)


def change(rule: FaultRule, seen: SeenRequest, chosen: Iterable[NamedPart], response: Any) -> Any:
    """Return the answer with the rule's values in it. If the rule names a topic or a partition, only its elements in
    the answer change. The result is a copy, because handlers may use one message for several answers."""
    where = parts_of(seen.key, seen.version) if rule.names_parts else None
    about = tuple(chosen)
    for path, value in rule.change:
        response = _with(response, path.split("."), value, where, about, 0)
    return response


def _with(
    message: Message, path: list[str], value: Any, where: Parts | None, about: tuple[NamedPart, ...], depth: int
) -> Message:
    name, *rest = path
    changed = copy.copy(message)
    inner = getattr(message, name)
    if not rest:
        inner = value
    elif isinstance(inner, Message):
        inner = _with(inner, rest, value, None, about, depth)
    elif inner is not None:
        level = where.levels[depth] if where is not None and depth < len(where.levels) else None
        if level is None or level.answered != name:
            inner = [_with(one, rest, value, None, about, depth) for one in inner]
        else:
            inner = [_in_part(one, rest, value, (where, level), about, depth) for one in inner]
    setattr(changed, name, inner)
    return changed


def _in_part(
    one: Message, path: list[str], value: Any, at: tuple[Parts | None, Level], about: tuple[NamedPart, ...], depth: int
) -> Message:
    where, level = at
    meant = tuple(part for part in about if is_about(one, part_names(part, level, depth)))
    return _with(one, path, value, where, meant, depth + 1) if meant else one
