"""The end of a command: its exit status, and the one line about a failure.

Responsible for the choice of exceptions that are failures which a user can correct, and for their texts. Every other
exception is a fault of the program, and keeps its traceback.
"""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pykbroker.entry.command_parser import UsageError

#: Modules and classes of exceptions. They are not imported, because a module that is not loaded has raised nothing.
_EXPECTED: Final = (
    ("pykbroker.config.kinds", "ConfigError"),
    ("pykbroker.storage.format", "StorageFormatError"),
    ("pykbroker.tools.cluster.failure", "Unreachable"),
    ("pykbroker.tools.cluster.failure", "AskFailed"),
    ("pykbroker.tools.cluster.failure", "NotServed"),
)
#: Exit status for a command line that cannot be parsed, as in the programs of a shell.
USAGE: Final = 2
#: Exit status of a program that Ctrl-C has ended, as a shell reports it.
_INTERRUPTED: Final = 128 + signal.SIGINT
#: Characters that end a line for a reader or a terminal (those of str.splitlines), others that control a terminal
#: (escapes, the direction of letters), and halves of surrogate pairs, which no encoding has. A tab is not among them.
_STEERS: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def exit_status(act: Callable[[], int | None]) -> int:
    """Run a command to its end and return its exit status. `act` runs it and returns the status; None means 0. An
    exception that is a fault of the program is raised again."""
    try:
        status = act()
        _flush()
    except UsageError as error:
        say(str(error))
        return USAGE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has closed it. The interpreter flushes stdout once more at exit, which must not fail.
        from pykbroker.entry.lost_output import drop_output  # a probe loads next to nothing

        drop_output()
        return 1
    except Exception as error:
        line = said_of(error)
        if line is None:
            raise
        say(line)
        return 1
    return int(status or 0)


def put_line(line: str) -> None:
    """Write a line to standard output. Raises OSError with a sentence as its `strerror`; it is BrokenPipeError if the
    reader of a pipe has closed it."""
    try:
        print(line, flush=True)
    except OSError as error:
        raise without_output(error) from None


def without_output(error: OSError) -> OSError:
    """Drop the output that is left, and return an error whose `strerror` is a sentence. `error`: that of a write to
    standard output."""
    from pykbroker.entry.lost_output import LostOutput, drop_output  # a probe loads next to nothing

    drop_output()
    return LostOutput(error).of_system()


def _flush() -> None:
    """Flush standard output. Raises OSError as `put_line` does."""
    # A shell can start a program without a standard output, and Python then has none.
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except OSError as error:
        raise without_output(error) from None


def missing_tools(command: str) -> UsageError:
    """Return the error for a command whose packages, those of the extra `tools`, are not all installed."""
    from pykbroker.extras import how_to_install

    return UsageError(f"`pykbroker {command}` needs more packages: {how_to_install('tools')}")


def say(line: str) -> None:
    """Write a failure's line to standard error, after the program's name."""
    with suppress(OSError):
        _flush()
    print(f"pykbroker: {one_line(line)}", file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    r"""Return a text of a client, a file or another program as one line that cannot control a terminal: characters of
    `_STEERS` become escapes of Python, for example \n for the end of a line."""
    return _STEERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def said_of(error: BaseException) -> str | None:
    """Return the line of a failure, or None for a fault of the program."""
    if isinstance(error, OSError):
        return _of_system(error)
    for module, name in _EXPECTED:
        loaded = sys.modules.get(module)
        if loaded is not None and isinstance(error, getattr(loaded, name)):
            code = getattr(error, "code", None)
            text = " ".join(str(error).split())
            if name == "Unreachable":
                otherwise = "Is a broker running there? `-b HOST:PORT` names another"
                return f"{text.rstrip('.')}. {getattr(error, 'what_to_do', None) or otherwise}"
            if code is not None and code.name == "NETWORK_EXCEPTION" and "cannot be reached" in text:
                return f"{text}. A broker gave this address: see its advertised.listeners"
            return text if code is None else f"{text.rstrip('.')} ({code.name})"
    return None


def _of_system(error: OSError) -> str:
    """Return the line without the number of the error, which does not help the user."""
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{error.filename}: {reason}"
