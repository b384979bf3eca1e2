"""The answers of one node to a script, as text for people: without fields that have their default, equal versions
together."""

from __future__ import annotations

import json
from typing import Any

from compat_tests.differential.session import Step
from pykbroker_wire.errors import ErrorCode


def text(steps: list[Step]) -> str:
    lines: list[str] = []
    seen: tuple[str, str, list[int], str] | None = None
    for step in steps:
        said = f"   asked    {_plain(_short(step.asked))}\n   answered {_plain(step.answered)}"
        if seen and step.api and seen[:2] == (step.label, step.api) and seen[3] == said:
            seen[2].append(step.version)
            continue
        if seen:
            lines.append(_entry(*seen))
        seen = (step.label, step.api, [step.version], said)
    if seen:
        lines.append(_entry(*seen))
    return "\n".join(lines) + "\n"


def _entry(label: str, api: str, versions: list[int], said: str) -> str:
    return f"-- {label}" + (f" [{api} v{','.join(map(str, versions))}]" if api else "") + f"\n{said}"


def _short(value: Any) -> Any:
    """Return the value without fields that have no or little information."""
    if isinstance(value, list):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {
            name: _short(item) for name, item in value.items() if item not in (-1, "", None, [], False, "‹zero uuid›")
        }
    return value


def _plain(value: Any) -> str:
    return json.dumps(_named(value), ensure_ascii=False)[:4000]


def _named(value: Any) -> Any:
    if isinstance(value, list):
        return [_named(item) for item in value]
    if isinstance(value, dict):
        return {
            name: f"{item} {ErrorCode(item).name}" if name.endswith("error_code") and item else _named(item)
            for name, item in value.items()
            if not (name == "throttle_time_ms" and item == 0)
        }
    return value
