"""argparse with the error and help texts that the tools' commands have: one parser for each command of this package.

Responsible for the errors about words that a command does not take, and for the help. The command group of the tools
uses the same parsers (tools/commands/passed_on.py).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NoReturn

from pykbroker.config.nearest import nearest

_WIDEST: Final = 80
#: The most characters for the column of options. The text of an option that is wider begins on the next line.
_OPTIONS_COLUMN: Final = 30


class UsageError(Exception):
    """The words of a command line match no command. The message is the whole line for the user."""


class CommandParser(argparse.ArgumentParser):
    """The options of one command. An option that takes a value has a long name.

    name: the name of the command. text: the description; its first line is a summary. example: one or more command
    lines, each on a line of its own.
    """

    def __init__(self, name: str, text: str, *, example: str) -> None:
        super().__init__(f"pykbroker {name}", add_help=False, allow_abbrev=False, exit_on_error=False, description=text)
        self.example = example
        self.add_argument("-h", "--help", action="help", help="Show this message and exit.")
        self._exclusive: list[tuple[str, ...]] = []

    def exclude(self, *options: str) -> None:
        """Refuse a command line that has more than one of these options, which are named with their dashes."""
        self._exclusive.append(options)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """Parse the words. Raises UsageError. `--help` prints the help and raises SystemExit."""
        try:
            given, left = self.parse_known_args(list(self._joined(words)))
        except argparse.ArgumentError as error:
            raise self._usage_error(_said_of(error)) from None
        for word in left:
            if word.startswith("-"):
                option = word.partition("=")[0]
                meant = nearest(option, self._option_string_actions)
                raise self._usage_error(f"No such option '{option}'." + (f" Did you mean '{meant}'?" if meant else ""))
            raise self._usage_error(f"Got unexpected extra argument ({word}).")
        for options in self._exclusive:
            both = [option for option in options if self._is_given(given, option)]
            if len(both) > 1:
                raise self._usage_error(f"{both[0]} does not go with {both[1]}.")
        return given

    def _joined(self, words: Sequence[str]) -> Iterator[str]:
        """Join each option with its value to one word. Otherwise argparse would refuse a value that begins with a
        dash."""
        following = iter(words)
        for word in following:
            action = self._option_string_actions.get(word)
            if word == "--":
                yield word
                yield from following
            elif action is None or action.nargs == 0 or (value := next(following, None)) is None:
                yield word
            else:
                yield f"{max(action.option_strings, key=len)}={value}"

    def _is_given(self, given: argparse.Namespace, option: str) -> bool:
        action = self._option_string_actions[option]
        value: object = getattr(given, action.dest)
        return bool(value != action.default)

    def _usage_error(self, text: str) -> UsageError:
        return UsageError(f"{text} Try '{self.prog} --help'.")

    def error(self, message: str) -> NoReturn:
        """Raise UsageError. argparse calls this for an error that is not an ArgumentError."""
        raise self._usage_error(f"{message[:1].upper()}{message[1:].rstrip('.')}.")

    # -- help ---------------------------------------------------------------------------------------------------------

    def arguments(self) -> list[argparse.Action]:
        """Return positional arguments and options in the order in which they were added; `--help` is the first."""
        return list(self._actions)

    def usage_line(self) -> str:
        """Return the form of a command line, in one line."""
        places = [str(action.metavar) for action in self._actions if not action.option_strings]
        return " ".join([self.prog, "[OPTIONS]", *places])

    def format_usage(self) -> str:
        return f"Usage: {self.usage_line()}\n"

    def format_help(self) -> str:
        width = min(shutil.get_terminal_size().columns, _WIDEST) - 2
        lines = [f"Usage: {self.usage_line()}", ""]
        for paragraph in (self.description or "").split("\n\n"):
            lines += [*_wrapped(" ".join(paragraph.split()), width, "  ", "  "), ""]
        lines.append("Options:")
        shown = [(names_of(action), action.help or "") for action in self._actions if action.option_strings]
        # `--help` comes last, as in the help of the tools' commands.
        shown.append(shown.pop(0))
        column = min(max(len(names) for names, _ in shown) + 4, _OPTIONS_COLUMN)
        for names, text in shown:
            if len(names) + 4 > column:
                lines += [f"  {names}", *_wrapped(text, width, " " * column, " " * column)]
            else:
                lines += _wrapped(text, width, f"  {names}".ljust(column), " " * column)
        # The lines of an example are not wrapped, so that a user can copy them.
        lines += ["", "Example:", *(f"  $ {line}" for line in self.example.splitlines())]
        return "\n".join(lines) + "\n"

    def print_help(self, file: Any = None) -> None:
        (file or sys.stdout).write(self.format_help())


def add_properties(parser: CommandParser) -> None:
    """Add the argument `properties` and the option `--set` to a command."""
    parser.add_argument("properties", nargs="?", metavar="[server.properties]")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="Set one configuration key (may be repeated).",
    )


def names_of(action: argparse.Action) -> str:
    """Return an option's names, the short name first, and the word that stands for its value."""
    names = ", ".join(sorted(action.option_strings, key=len))
    return names if action.nargs == 0 else f"{names} {action.metavar}"


def integer(text: str) -> int:
    """Parse an integer, as a type of argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a valid integer") from None


def one_of(values: Collection[str]) -> Callable[[str], str]:
    """Return a type of argparse that accepts one of these words, in any case."""

    def chosen(text: str) -> str:
        for value in values:
            if value.lower() == text.lower():
                return value
        known = ", ".join(f"'{value}'" for value in values)
        raise argparse.ArgumentTypeError(f"'{text}' is not one of {known}")

    return chosen


def _said_of(error: argparse.ArgumentError) -> str:
    name = max((error.argument_name or "").split("/"), key=len)
    if error.message.startswith("expected "):
        return f"Option '{name}' requires an argument."
    if error.message.startswith("ignored "):
        return f"Option '{name}' takes no value."
    return f"Invalid value for '{name}': {error.message}."


def _wrapped(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
