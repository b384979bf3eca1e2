"""`pykbroker`: the command line. One module per command; this one knows their names and how a command ends.

Imports are kept small: the time from here to the first answered request is measured.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pykbroker.tools.commands.command_group import Program

SECTIONS: Final = {
    "Nodes on this machine": {
        "start": "Run a node, or a cluster of nodes; no argument is needed.",
        "health": "Ask a running node whether it serves.",
        "format": "Format the log directories of a properties file.",
        "storage": "Do what Apache Kafka's kafka-storage does, with its options.",
        "random-uuid": "Print a new cluster id or directory id.",
        "logs": "Print and verify the files of a log directory, of this node or of Apache Kafka.",
    },
    "Any Kafka cluster": {
        "produce": "Send lines, files or JSON as records of a topic.",
        "consume": "Print the records of topics.",
        "bench": "Put a small load on a cluster and say what came of it.",
        "topics": "List, create, describe, alter and delete topics.",
        "groups": "List, describe, reset and delete groups of consumers.",
        "configs": "Describe and alter configurations of topics, brokers, groups and client metrics.",
        "users": "List the users of SCRAM, set their passwords, remove them.",
        "acls": "List, add, remove and check the rules of what principals may do.",
        "reassign": "Move partitions between brokers.",
        "balance": "Even out the load of brokers.",
        "transactions": "List, describe and end transactions; find those that hang.",
        "cluster": "Show the nodes and the features of a cluster; unregister brokers.",
        "quorum": "Describe the quorum of the controllers; add and remove voters.",
    },
    "Other": {
        "generate": "Print what other programs read: manifests, units, Prometheus' configuration, completion scripts.",
        "in-container": "Do what the scripts of the container image ask for.",
        "tls": "Make certificates for development.",
        "version": "Print the version.",
    },
}
#: By this variable the script of `generate completion` asks what may follow.
COMPLETE_VARIABLE: Final = "_PYKBROKER_COMPLETE"
#: Old names, and what only programs run; no list has them.
HIDDEN: Final = ("dump-log",)
#: What a shell says of a program that Ctrl-C has ended.
_INTERRUPTED: Final = 128 + signal.SIGINT


def program() -> Program:
    """The tree of all commands; each module of a command is imported when the command is asked for."""
    import click

    from pykbroker import __version__
    from pykbroker.tools.commands.command_group import Program

    whole = Program(
        "pykbroker",
        sections=SECTIONS,
        hidden=HIDDEN,
        help="A Kafka broker in Python, and what it takes to work with one.",
    )
    return click.version_option(__version__, prog_name="pykbroker", message="%(prog)s %(version)s")(whole)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given else ""
    if command == "in-container" or os.getpid() == 1:
        _end_on_signals()
    import click

    from pykbroker.tools.commands import failures

    try:
        status = program().main(given, prog_name="pykbroker", complete_var=COMPLETE_VARIABLE, standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        failures.say(failures.said_of_usage(error))
        # Apache Kafka's kafka-storage says 1 of words that it does not know.
        return 1 if command == "storage" else 2
    except click.ClickException as error:
        failures.say(error.format_message())
        return 1
    except (click.Abort, KeyboardInterrupt):
        return _INTERRUPTED
    except BrokenPipeError:
        # What reads the output has ended. The interpreter flushes once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        line = failures.said_of(error)
        if line is None:
            raise
        failures.say(line)
        return 1
    return int(status or 0)


def _end_on_signals() -> None:
    """The first process of a container gets no signal that it does not handle: at once, until a node handles them. The
    image's scripts block them before they start this interpreter, so that those of the meantime come now."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    sys.exit(main())
