"""The program `pykbroker`, also `python -m pykbroker`.

It runs the commands of a broker by itself (pykbroker/entry). Every other command is one of pykbroker/tools, which needs
the packages of the extra `tools`: without them one line says what to install.

It imports little, because a container engine runs `pykbroker health` every few seconds, and because the time from here
to the first answered request of a node is measured.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import FrameType

from pykbroker.entry import failures
from pykbroker.entry.own_commands import COMPLETE_VARIABLE, OWN_COMMANDS, run_own_command


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status. `arguments`: the command line without the program's name; by default
    that of this process."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    if command == "in-container" or os.getpid() == 1:
        _end_on_signals()
    if command in OWN_COMMANDS and COMPLETE_VARIABLE not in os.environ:
        return failures.exit_status(lambda: run_own_command(command, given[1:]))
    if find_spec("click") is not None:
        from pykbroker.tools.commands.main import main as run_tools

        return run_tools(given)
    return failures.exit_status(lambda: _without_tools(command))


def _without_tools(command: str) -> int:
    """Answer --version and --help without the extra `tools`. Raises UsageError for a command of the tools."""
    from pykbroker import __version__
    from pykbroker.extras import how_to_install

    if command == "--version":
        print(f"pykbroker {__version__}")
    elif command in ("", "-h", "--help"):
        print("Usage: pykbroker COMMAND [ARGS]...\n\nCommands:")
        for name, text in OWN_COMMANDS.items():
            print(f"  {name:<8}  {text}")
        print(f"\nThe other commands need more packages: {how_to_install('tools')}")
    else:
        raise failures.missing_tools(command)
    return 0


def _end_on_signals() -> None:
    """Exit at SIGTERM and SIGINT, until a node sets its own handlers. The kernel sends the first process of a container
    no signal that it does not handle. The image's scripts block both signals before they start this interpreter, so a
    signal that came before this call arrives when this call unblocks it."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    sys.exit(main())
