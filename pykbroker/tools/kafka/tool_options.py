"""Options as joptsimple reads them. Most of Apache Kafka's tools use it.

Responsible for the grammar (`--name value`, `--name=value`, repeated options, `--` as the end of options, no
abbreviations), its error lines, and the usage. Not responsible for the meaning of an option.

As in joptsimple, an option with a required argument takes the next word even if it begins with a dash (`--time -1`). An
option with an optional argument takes the next word only if it does not look like an option; if the argument is a
number, the word must be a number. Words that belong to no option are ignored.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

#: The version of Apache Kafka that these tools follow; scripts compare the output of --version with it.
KAFKA_VERSION: Final = "4.3.1"

_NAME_WIDTH = 42


class OptionError(Exception):
    """A command line cannot be parsed. The message is joptsimple's."""


class ToolEnded(SystemExit):
    """The tool has ended, and its last lines are printed."""


@dataclass(slots=True, frozen=True)
class Accepted:
    """One option of a tool."""

    name: str
    text: str
    #: the name of the argument in the usage; empty if the option takes none
    argument: str = ""
    kind: type[int] | type[str] = str
    default: str | None = None
    #: the argument may be absent
    is_optional: bool = False
    #: the values that it may have
    choices: tuple[str, ...] = ()
    #: the reason why the option is not served here; empty if it is served
    not_served: str = ""


class Given:
    """The options of one command line."""

    def __init__(
        self,
        accepted: Mapping[str, Accepted],
        found: Mapping[str, list[str | None]],
        order: Sequence[tuple[str, str | None]],
    ) -> None:
        self._accepted = accepted
        self._found = found
        self._order = order

    def has(self, name: str) -> bool:
        return name in self._found

    def names(self) -> list[str]:
        """Return the options that were given."""
        return list(self._found)

    def text(self, name: str) -> str | None:
        """Return the value of an option, or its default. Raises OptionError if the option was given twice."""
        values = self.texts(name)
        if len(values) > 1:
            raise OptionError(f"Found multiple arguments for option {name}, but you asked for only one")
        return values[0] if values else self._accepted[name].default

    def texts(self, name: str) -> list[str]:
        return [value for value in self._found.get(name, []) if value is not None]

    def in_order(self, *names: str) -> list[str]:
        """Return the values of several options in the order of the command line. The value of an option without an
        argument is ""."""
        return [value or "" for name, value in self._order if name in names]

    def number(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise OptionError(f"Cannot parse argument '{text}' of option {name}") from None

    def integer(self, name: str) -> int:
        """Return the number of an option that has a default."""
        found = self.number(name)
        assert found is not None, f"{name} has no default"
        return found


class Options:
    """The options of a tool. `summary` is printed above the usage."""

    def __init__(self, summary: str, accepted: Iterable[Accepted]) -> None:
        self.summary = summary
        standard = [Accepted("help", "Print this text."), Accepted("version", "Print the version of Apache Kafka.")]
        self._accepted = {option.name: option for option in [*accepted, *standard]}

    def parse(self, words: Sequence[str]) -> Given:
        """Parse a command line. Raises OptionError."""
        found: dict[str, list[str | None]] = {}
        order: list[tuple[str, str | None]] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                break
            if not word.startswith("-") or word == "-":
                continue
            name, equals, value = word.lstrip("-").partition("=")
            if not word.startswith("--") and name not in self._accepted:
                name = name[:1]
            option = self._accepted.get(name)
            if option is None:
                raise OptionError(f"{name} is not a recognized option")
            taken = _argument(option, rest, value if equals else None)
            found.setdefault(name, []).append(taken)
            order.append((name, taken))
        for name in found:
            if self._accepted[name].not_served:
                raise OptionError(f"--{name} is not supported by pykbroker: {self._accepted[name].not_served}")
        return Given(self._accepted, found, order)

    def read(self, words: Sequence[str]) -> Given:
        """Parse a command line like `parse`, but show the usage and end the tool if an option is wrong. Also ends the
        tool for help or version."""
        try:
            given = self.parse(words)
        except OptionError as error:
            self.end_with_usage(str(error))
        self.help_or_version(words, given)
        return given

    def end_with_usage(self, message: str) -> NoReturn:
        """Print message and usage on standard error and end with status 1, as Apache Kafka's tools do, also for
        --help."""
        print(message, file=sys.stderr)
        print(self.usage(), file=sys.stderr)
        raise ToolEnded(1)

    def help_or_version(self, words: Sequence[str], given: Given) -> None:
        """End the tool if only help or the version was requested."""
        if not words or given.has("help"):
            self.end_with_usage(self.summary)
        if given.has("version"):
            print(KAFKA_VERSION)
            raise ToolEnded(0)

    def usage(self) -> str:
        rows = [("Option", "Description"), ("------", "-----------")]
        for name in sorted(self._accepted):
            option = self._accepted[name]
            written = f"--{name}"
            if option.argument:
                kind = "Integer" if option.kind is int else "String"
                opened, closed = "[]" if option.is_optional else "<>"
                written += f" {opened}{kind}: {option.argument}{closed}"
            said = option.text
            if option.default:
                said += f" (default: {option.default})"
            if option.not_served:
                said = f"Not supported by pykbroker: {option.not_served}"
            rows.append((written, said))
        lines = []
        for written, said in rows:
            if len(written) >= _NAME_WIDTH:
                lines.append(written)
                written = ""
            lines.append(f"{written:<{_NAME_WIDTH}}{said}".rstrip())
        return "\n".join(lines)

    # -- the checks that Apache Kafka's tools make --------------------------------------------------------------------

    def require(self, given: Given, *names: str) -> None:
        for name in names:
            if not given.has(name):
                self.end_with_usage(f'Missing required argument "[{name}]"')

    def exactly_one(self, given: Given, *names: str) -> str:
        """Return which of these options was given. Show the usage and end the tool unless there is exactly one."""
        found = [name for name in names if given.has(name)]
        if len(found) != 1:
            listed = ", ".join(f"[{name}]" for name in names)
            self.end_with_usage(f"Exactly one of the following arguments is required: {listed}")
        return found[0]

    def exclude(self, given: Given, used: str, *others: str) -> None:
        """Show the usage and end the tool if `used` was given together with one of the others."""
        if given.has(used):
            for other in others:
                if given.has(other):
                    self.end_with_usage(f'Option "[{used}]" can\'t be used with option "[{other}]"')

    def both(self, given: Given, new: str, old: str) -> str:
        """Return the name, new or old, with which an option that Apache Kafka has renamed was given. Show the usage and
        end the tool if both were given."""
        if given.has(new) and given.has(old):
            self.end_with_usage(f"Options --{new} and --{old} cannot be specified together.")
        return old if given.has(old) else new


def _argument(option: Accepted, rest: list[str], written: str | None) -> str | None:
    """Return the argument of an option: `written`, or the next word, which is removed from `rest`."""
    if not option.argument:
        if written is not None:
            raise OptionError(f"Option {option.name} does not allow an argument")
        return None
    if written is None:
        if option.is_optional:
            return rest.pop(0) if rest and _is_for(option, rest[0]) else None
        if not rest:
            raise OptionError(f"Option {option.name} requires an argument")
        written = rest.pop(0)
    if option.choices and written not in option.choices:
        raise OptionError(f"Cannot parse argument '{written}' of option {option.name}")
    return written


def _is_for(option: Accepted, word: str) -> bool:
    """Return True if the word can be the optional argument of the option."""
    if option.kind is int:
        return re.fullmatch(r"[+-]?\d+", word) is not None
    return not word.startswith("-") or word == "-"


def key_values(written: Iterable[str], *, needs_value: bool = False) -> dict[str, str]:
    """Parse texts of the form `key=value`. A value may contain further equals signs, or be missing. Raises OptionError
    for a missing value if `needs_value`."""
    pairs = {}
    for text in written:
        key, _, value = text.partition("=")
        if needs_value and not value:
            raise OptionError(f"Missing value for key {key}")
        pairs[key] = value
    return pairs


def say_error(error: BaseException, tool: str) -> None:
    """Print the line that Apache Kafka's logger writes for the exception that ended a tool: its class, and its
    message."""
    name: Any = getattr(error, "name", None)
    written = name if isinstance(name, str) else _JAVA_NAMES.get(type(error).__name__, type(error).__name__)
    print(f"ERROR {written}: {error} ({tool})", file=sys.stderr)


_JAVA_NAMES: Final = {
    "ValueError": "java.lang.IllegalArgumentException",
    "OptionError": "joptsimple.OptionException",
    "ConfigError": "org.apache.kafka.common.config.ConfigException",
    "FileNotFoundError": "java.nio.file.NoSuchFileException",
}
