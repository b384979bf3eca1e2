"""`pykbroker fork`: copies of the directories of stopped nodes, on which another cluster starts.

Responsible for the words of the command line, and for asking whether a node of the source still listens. Not
responsible for the content of a fork (pykbroker/storage/forks.py).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import click

from pykbroker.config.kinds import ConfigError
from pykbroker.entry import failures
from pykbroker.tools.commands.command_group import Command

if TYPE_CHECKING:
    from pykbroker.storage.forks import ForkReport
    from pykbroker.storage.stored_cluster import StoredAddress

_PATIENCE_SECONDS: Final = 2.0
_AT_ONCE: Final = 32


@click.command(
    "fork",
    cls=Command,
    example="pykbroker fork /var/lib/pykbroker /var/lib/pykbroker-copy\n"
    "pykbroker fork --link ~/.local/share/pykbroker-cluster /tmp/trial",
)
@click.argument("paths", nargs=-1, required=True, metavar="DIR NEW [DIR NEW]...")
@click.option("--keep-cluster-id", is_flag=True, help="Keep the cluster id; otherwise the fork gets a new one.")
@click.option(
    "--link",
    is_flag=True,
    help="Give closed files a second name instead of copying them. Not for directories that Apache Kafka opens, "
    "because it may change such files in place, in both directories.",
)
def command(paths: tuple[str, ...], keep_cluster_id: bool, link: bool) -> int:
    """Fork the directories of a stopped node, or of all nodes of a stopped cluster.

    DIR is a directory of a node (with a meta.properties), or a folder with such directories, as `start --brokers` makes
    it. NEW must not exist, or must be empty. Name all directories of a cluster in one command. Where the file system
    can share the blocks of two files, the copies need neither time nor room.
    """
    import random
    import time
    from dataclasses import replace

    from pykbroker.entry.local_cluster.topology import CLUSTER_FILE, layout_from_json
    from pykbroker.storage.forks import ForkError, Pair, Wanted, fork
    from pykbroker_log.os_disk.disk import OsDisk
    from pykbroker_wire.primitives import random_uuid, uuid_to_str

    def renamed(data: bytes, cluster_id: str) -> bytes:
        layout = layout_from_json(data.decode("utf-8", "replace"), CLUSTER_FILE)
        return replace(layout, cluster_id=cluster_id).to_json().encode()

    if len(paths) % 2:
        raise click.UsageError("Directories come in pairs: DIR NEW.")
    ends = [os.path.abspath(path) for path in paths]
    wanted = Wanted(
        [Pair(source, target) for source, target in zip(ends[::2], ends[1::2], strict=True)],
        None if keep_cluster_id else uuid_to_str(random_uuid(random.SystemRandom())),
        may_link=link,
        now_ms=time.time_ns() // 1_000_000,
        rewritten={CLUSTER_FILE: renamed},
    )
    try:
        report = fork(OsDisk(), wanted, answering)
    except (ForkError, ConfigError) as error:
        failures.say(str(error))
        return 1
    for line in lines(report):
        click.echo(line)
    return 0


def lines(report: ForkReport) -> list[str]:
    """Return the lines about a fork that was made."""
    done = report.forked
    directories = "1 directory" if report.directories == 1 else f"{report.directories} directories"
    found = [
        f"Forked {directories} as cluster {report.cluster_id}: {done.linked_files} files linked, {done.copied_files} "
        f"copied, {done.written_bytes / 1e6:.1f} MB written."
    ]
    if not report.is_clean:
        found.append("The last stop was not clean, so the first start on the fork checks its logs.")
    if report.missing_voters:
        numbers = ", ".join(map(str, report.missing_voters))
        found.append(
            f"The quorum has further voters: {numbers}. Fork their directories in the same command to start it."
        )
    return found


def answering(addresses: Sequence[StoredAddress]) -> list[StoredAddress]:
    """Return the addresses that accept a connection."""
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return [each for each, accepts in zip(addresses, threads.map(_accepts, addresses), strict=True) if accepts]


def _accepts(address: StoredAddress) -> bool:
    try:
        socket.create_connection((address.host, address.port), timeout=_PATIENCE_SECONDS).close()
    except OSError:
        return False
    return True
