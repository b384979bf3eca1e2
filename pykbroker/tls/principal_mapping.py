"""ssl.principal.mapping.rules: maps the subject of a client's certificate to the name of its principal (KIP-371).

Pure. The rules are tried in order. `DEFAULT` applies to each subject and returns it unchanged.
`RULE:pattern/replacement/[LU]` applies to a subject if the pattern matches all of it. If no rule applies to a subject,
there is no name, and the connection ends.

The patterns are Java's regular expressions. A pattern that Python does not support, or for which Python warns of
another meaning, raises ConfigError. A replacement that Java would refuse only when a client connects also raises
ConfigError.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Final

from pykbroker.config.kinds import ConfigError

KEY: Final = "ssl.principal.mapping.rules"
_END_OF_RULE: Final = re.compile(r"\s*(?:,\s*|$)")
_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"RULE:{_PART}/{_PART}/([LU]?)")
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")


@dataclass(slots=True, frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    #: the parts of the replacement: texts, and numbers of groups
    replacement: tuple[str | int, ...]
    case: str

    def apply(self, subject: str) -> str | None:
        if self.pattern.fullmatch(subject) is None:
            return None
        # `sub` is not used: after an empty match it looks for another match at the same place, while Java continues
        # after it.
        out, position, kept = [], 0, 0
        while position <= len(subject) and (match := self.pattern.search(subject, position)) is not None:
            out += [subject[kept : match.start()], self._replaced(match)]
            kept = match.end()
            position = kept if kept > match.start() else kept + 1
        name = "".join(out) + subject[kept:]
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replaced(self, match: re.Match[str]) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in self.replacement)


class PrincipalMapper:
    """The rules of one listener."""

    def __init__(self, rules: str) -> None:
        """Raises ConfigError for invalid rules."""
        self._text = rules
        self._rules = _parse(rules.strip())

    def name_of(self, subject: str) -> str | None:
        """Return the principal's name without its type, or None if no rule applies to the subject."""
        for rule in self._rules:
            name = subject if rule is None else rule.apply(subject)
            if name is not None:
                return name
        return None


def _parse(text: str) -> list[_Rule | None]:
    """Return the rules; None stands for DEFAULT. Empty rules are ignored, as in Apache Kafka."""
    rules: list[_Rule | None] = []
    position = 0
    while position < len(text):
        rest = text[position:]
        if (match := _RULE.match(rest)) and (end := _END_OF_RULE.match(rest, match.end())):
            rules.append(_rule(text, *match.groups()))
        elif rest.startswith("DEFAULT") and (end := _END_OF_RULE.match(rest, len("DEFAULT"))):
            rules.append(None)
        else:
            end = _END_OF_RULE.match(rest)
        if end is None:
            raise _wrong(text, f"{rest!r} does not begin with a rule")
        position += max(end.end(), 1)
    return rules


def _rule(rules: str, pattern: str, replacement: str, case: str) -> _Rule:
    try:
        with warnings.catch_warnings():
            # For a set within a set, which Java supports, Python only warns. Treat the warning as an error.
            warnings.simplefilter("error")
            compiled = re.compile(_NAMED_GROUP.sub("(?P<", pattern), re.ASCII)
    except (re.error, Warning) as error:
        raise _wrong(rules, f"the pattern {pattern!r} cannot be used: {error}") from error
    return _Rule(compiled, tuple(_replacement(rules, replacement, compiled)), case)


def _replacement(rules: str, text: str, pattern: re.Pattern[str]) -> list[str | int]:
    parts: list[str | int] = []
    position = 0
    while position < len(text):
        char = text[position]
        position += 1
        if char == "\\":
            parts.append(text[position])
            position += 1
        elif char != "$":
            parts.append(char)
        elif number := re.match(r"[0-9]+", text[position:], re.ASCII):
            digits = number[0]
            while len(digits) > 1 and int(digits) > pattern.groups:
                digits = digits[:-1]
            if int(digits) <= pattern.groups:
                parts.append(int(digits))
            elif pattern.groups:
                # Apache Kafka treats a reference to a missing group as text.
                parts.append(f"${digits}")
            else:
                raise _wrong(rules, f"the pattern has no group {digits}, which {text!r} refers to")
            position += len(digits)
        elif (name := re.match(r"\{([a-zA-Z][a-zA-Z0-9]*)\}", text[position:])) and name[1] in pattern.groupindex:
            parts.append(pattern.groupindex[name[1]])
            position += name.end()
        else:
            raise _wrong(rules, f"{text!r} refers to no group with its dollar sign")
    return parts


def _wrong(rules: str, message: str) -> ConfigError:
    return ConfigError(f"Invalid value {rules} for configuration {KEY}: {message}")
