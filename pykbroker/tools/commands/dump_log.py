"""`pykbroker dump-log`: the old name of `pykbroker logs`, with the options of Apache Kafka's DumpLogSegments."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from pykbroker.entry import failures
from pykbroker.tools.commands.command_group import Command
from pykbroker.tools.commands.logs import DumpOptions, dump_files, dump_options, verify_paths
from pykbroker.tools.commands.output import Output


@click.command(
    "dump-log",
    cls=Command,
    example="pykbroker dump-log --files orders-0/00000000000000000000.log --print-data-log\n"
    "pykbroker dump-log --verify /var/lib/pykbroker",
)
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option("--files", metavar="FILE,FILE", help="The files to print, separated by commas.")
@click.option(
    "--verify",
    is_flag=True,
    help="Print only what is wrong, a line each, and a summary; the exit status is 1 when something is.",
)
@dump_options
def command(paths: tuple[str, ...], files: str | None, verify: bool, **words: Any) -> int:
    """Print or verify the files of a log directory.

    The words are those of Apache Kafka's DumpLogSegments. With --verify the paths are log directories, partition
    folders or files.
    """
    from pykbroker.tools.commands.apart import run_apart

    named = [name.strip() for name in (files or "").split(",") if name.strip()]
    if verify and (paths or named):
        return run_apart(partial(verify_paths, [*paths, *named], Output(is_json=False)))
    if verify:
        failures.say("--verify needs directories or files")
        return 1
    if not named or paths:
        failures.say("--files with at least one file is needed, or --verify with paths")
        return 1
    return run_apart(partial(dump_files, named, DumpOptions(**words)))
