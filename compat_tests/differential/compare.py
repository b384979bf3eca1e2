"""Runs a script against two nodes, and finds the differences of the transcripts and the faults on either side."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from compat_tests.differential import masks
from compat_tests.differential.masks import KAFKA, PYKBROKER
from compat_tests.differential.nodes import Side
from compat_tests.differential.plain import flatten
from compat_tests.differential.session import NodeError, Session, Step

Script = Callable[[Session], None]


def run(script: Script, side: Side, *, suffix: str = "", wording: bool = False) -> list[Step]:
    """Return the transcript. `suffix`: of all names, for a node that has run this script before."""
    session = Session(script.__name__, side.address, side.texts, suffix, wording, side.nodes)
    try:
        script(session)
    except NodeError as error:
        session.give_up(error)
    finally:
        session.end()
    return session.steps


def compare(theirs: list[Step], ours: list[Step]) -> list[str]:
    """Return the differences and the faults as text, step by step; equal ones in several versions are listed once. A
    step's fault counts even if the other side has the same."""
    found: list[tuple[str, str, list[int], list[str]]] = []
    parted: list[str] = []
    for index in range(max(len(theirs), len(ours))):
        left = theirs[index] if index < len(theirs) else None
        right = ours[index] if index < len(ours) else None
        if left is None or right is None or left.title != right.title:
            titles = f"{left.title if left else 'nothing'} | {right.title if right else 'nothing'}"
            parted.append(f"step {index}: {titles}: the transcripts part here")
            for name, step in ((KAFKA, left), (PYKBROKER, right)):
                if step is not None and isinstance(step.answered, str):
                    parted.append(f"    {name}: {step.answered}")
            break
        lines = _differences(left, right)
        if lines and found and (found[-1][0], found[-1][1], found[-1][3][1:]) == (left.label, left.api, lines[1:]):
            found[-1][2].append(left.version)
        elif lines:
            found.append((left.label, left.api, [left.version], lines))
    said: list[str] = []
    for label, api, versions, lines in found:
        said += [f"{label} [{api} v{', '.join(map(str, versions))}]" if api else label, *lines]
    return said + parted


def _differences(left: Step, right: Step) -> list[str]:
    theirs, ours = _seen(left, KAFKA), _seen(right, PYKBROKER)
    lines = [f"    asked {_text(left.asked)}"]
    lines += [f"    {name}: {step.fault}" for name, step in ((KAFKA, left), (PYKBROKER, right)) if step.fault]
    one, other = flatten(theirs), flatten(ours)
    absent = "(absent)"
    for path in [*one, *(path for path in other if path not in one)]:
        kafka, own = one.get(path, absent), other.get(path, absent)
        if kafka != own or type(kafka) is not type(own):
            lines.append(f"    {path or 'answer'}: {KAFKA} {_text(kafka)}, {PYKBROKER} {_text(own)}")
    return lines if len(lines) > 1 else []


def _seen(step: Step, side: str) -> Any:
    """Return the compared part of an answer of one side."""
    answer = json.loads(json.dumps(step.answered))
    masks.arrange(step.api, answer, side)
    if step.api == "ApiVersions":
        masks.drop_not_served(answer, side)
    _mask(step.api, answer, "")
    return answer


def _mask(api: str, value: Any, path: str) -> None:
    if isinstance(value, list):
        for item in value:
            _mask(api, item, path)
    elif isinstance(value, dict):
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            if masks.is_masked(api, inner):
                value[name] = "‹masked›"
            else:
                _mask(api, item, inner)


def _text(value: Any) -> str:
    text = value if value == "(absent)" else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 600 else text[:600] + "…"
