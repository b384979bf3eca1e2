"""The tree of all commands of `pykbroker`: one module per command; this module lists their names.

Responsible for the end of a command of this tree: its exit status and its error line. Not responsible for the commands
that a node needs (pykbroker/entry).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.entry import failures
from pykbroker.entry.lost_output import watched_output
from pykbroker.entry.own_commands import COMPLETE_VARIABLE, OWN_COMMANDS
from pykbroker.extras import is_of_extra

if TYPE_CHECKING:
    from pykbroker.tools.commands.command_group import Program

SECTIONS: Final = {
    "Nodes on this machine": {
        "start": OWN_COMMANDS["start"],
        "health": OWN_COMMANDS["health"],
        "format": OWN_COMMANDS["format"],
        "storage": "Do what Apache Kafka's kafka-storage does, with its options.",
        "fork": "Fork the directories of a stopped node, or of all nodes of a stopped cluster.",
        "random-uuid": "Print a new cluster id or directory id.",
        "migrate": "Check a node before it moves between Apache Kafka and pykbroker; plan the move of a cluster.",
        "logs": "Print and verify the files of a log directory, of this node or of Apache Kafka.",
    },
    "Any Kafka cluster": {
        "produce": "Send lines, files or JSON as records of a topic.",
        "consume": "Print the records of topics.",
        "bench": "Put a small load on a cluster and say what came of it.",
        "topics": "List, create, describe, alter and delete topics; their offsets and sizes.",
        "records": "Delete the oldest records of topics.",
        "leaders": "Elect leaders of partitions.",
        "groups": "List, describe, reset and delete groups of consumers; remove members.",
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
        "version": OWN_COMMANDS["version"],
    },
}
#: Old names, and commands that only programs run. No list shows them.
HIDDEN: Final = ("dump-log",)


def program() -> Program:
    """Return the tree of all commands; the module of a command is imported when the command is used."""
    import click

    from pykbroker import __version__
    from pykbroker.tools.commands.command_group import Program

    whole = Program(
        "pykbroker",
        sections=SECTIONS,
        hidden=HIDDEN,
        help="A Kafka broker in Python, and what it takes to work with one.",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    return click.version_option(__version__, prog_name="pykbroker", message="%(prog)s %(version)s")(whole)


def main(given: Sequence[str]) -> int:
    """Run one command of the whole tree; returns the exit status. `given`: without the program's name."""
    return failures.exit_status(lambda: _watched(list(given)))


def _watched(given: list[str]) -> int | None:
    with watched_output():
        return _run(given)


def _run(given: list[str]) -> int | None:
    import click

    from pykbroker.tools.commands.usage import said_of_usage

    try:
        status: int | None = program().main(
            given, prog_name="pykbroker", complete_var=COMPLETE_VARIABLE, standalone_mode=False
        )
    except click.UsageError as error:
        failures.say(said_of_usage(error))
        # Apache Kafka's kafka-storage returns 1 for unknown words.
        return 1 if given[:1] == ["storage"] else failures.USAGE
    except click.ClickException as error:
        failures.say(error.format_message())
        return 1
    except click.Abort:
        raise KeyboardInterrupt from None
    except ImportError as error:
        if not is_of_extra(error.name, "tools"):
            raise
        raise failures.missing_tools(given[0]) from None
    return status
