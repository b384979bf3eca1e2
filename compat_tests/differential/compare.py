"""Run a script against two nodes and say where the transcripts differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from compat_tests.differential import masks
from compat_tests.differential.nodes import Side
from compat_tests.differential.plain import flatten
from compat_tests.differential.session import NodeError, Session, Step
from pykbroker.api import TABLE, On
from pykbroker_wire.apis import APIS

Script = Callable[[Session], None]
# What this node does not serve it does not advertise: their absence is the statement.
NOT_ADVERTISED = frozenset(int(key) for key in APIS) - frozenset(int(row.key) for row in TABLE if row.on & On.BROKER)


def run(script: Script, side: Side, *, suffix: str = "", wording: bool = False) -> list[Step]:
    """The transcript. `suffix`: of all names, for a node that has seen this script before."""
    session = Session(script.__name__, side.address, side.texts, suffix, wording)
    try:
        script(session)
    except NodeError as error:
        session.steps.append(Step("the script could not go on", "", 0, None, f"{error}"))
    finally:
        session.close()
    return session.steps


def compare(theirs: list[Step], ours: list[Step]) -> list[str]:
    """The differences, as text, one step after another; what differs alike in several versions is said once."""
    found: list[tuple[str, str, list[int], list[str]]] = []
    parted: list[str] = []
    for index in range(max(len(theirs), len(ours))):
        left = theirs[index] if index < len(theirs) else None
        right = ours[index] if index < len(ours) else None
        if left is None or right is None or left.title != right.title:
            titles = f"{left.title if left else 'nothing'} | {right.title if right else 'nothing'}"
            parted.append(f"step {index}: {titles}: the transcripts part here")
            for name, step in (("Kafka", left), ("pykbroker", right)):
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
    theirs, ours = _seen(left), _seen(right)
    lines = [f"    asked {_text(left.asked)}"]
    one, other = flatten(theirs), flatten(ours)
    absent = "(absent)"
    for path in [*one, *(path for path in other if path not in one)]:
        kafka, own = one.get(path, absent), other.get(path, absent)
        if kafka != own or type(kafka) is not type(own):
            lines.append(f"    {path or 'answer'}: Kafka {_text(kafka)}, pykbroker {_text(own)}")
    return lines if len(lines) > 1 else []


def _seen(step: Step) -> Any:
    """An answer as far as it is compared."""
    answer = json.loads(json.dumps(step.answered))
    masks.arrange(step.api, answer)
    if step.api == "ApiVersions" and isinstance(answer, dict):
        answer["api_keys"] = [row for row in answer["api_keys"] if row["api_key"] not in NOT_ADVERTISED]
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
