"""The one line that is said of a failure.

Responsible for which exceptions are failures that a person can do something about, and for their words; every other
one is a fault of the program, and keeps its traceback.
"""

from __future__ import annotations

import sys
from typing import Final

import click

from pykbroker.config.nearest import nearest
from pykbroker.tools.commands.one_line import one_line

#: Looked up among the modules that are loaded: what was not loaded has raised nothing.
_EXPECTED: Final = (
    ("pykbroker.config.kinds", "ConfigError"),
    ("pykbroker.storage.format", "StorageFormatError"),
    ("pykbroker.tools.cluster.failure", "Unreachable"),
    ("pykbroker.tools.cluster.failure", "AskFailed"),
    ("pykbroker.tools.cluster.failure", "NotServed"),
)


def say(line: str) -> None:
    """Write a failure's line to standard error, behind the program's name."""
    sys.stdout.flush()
    print(f"pykbroker: {one_line(line)}", file=sys.stderr, flush=True)


def said_of(error: BaseException) -> str | None:
    """The line; None for a fault of the program."""
    if isinstance(error, OSError):
        return _of_system(error)
    for module, name in _EXPECTED:
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            code = getattr(error, "code", None)
            text = " ".join(str(error).split())
            if name == "Unreachable":
                return f"{text}. Is a broker running there? `-b HOST:PORT` names another"
            if code is not None and code.name == "NETWORK_EXCEPTION" and "cannot be reached" in text:
                return f"{text}. A broker has told this address: see its advertised.listeners"
            return text if code is None else f"{text.rstrip('.')} ({code.name})"
    return None


def said_of_usage(error: click.ClickException) -> str:
    """What is wrong with the words, and where the right ones are."""
    text = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    if isinstance(error, click.NoSuchOption) and context is not None:
        # In the words of an unknown command; those of click differ between its versions.
        known = [name for parameter in context.command.get_params(context) for name in parameter.opts]
        meant = nearest(error.option_name, known)
        text = f"No such option '{error.option_name}'." + (f" Did you mean '{meant}'?" if meant else "")
    if context is None:
        return text
    end = "" if text.endswith((".", "?", ")")) else "."
    return f"{text}{end} Try '{context.command_path} --help'."


def _of_system(error: OSError) -> str:
    """Without the number of the error, which says nothing to a person."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"
