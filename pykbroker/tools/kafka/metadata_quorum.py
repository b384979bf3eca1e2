"""kafka-metadata-quorum: describe the quorum of the controllers, and remove a controller from it."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pykbroker.tools.kafka.words import WordParser, add_servers, parsed, table, with_cluster

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster
    from pykbroker.tools.cluster.quorum_replicas import DescribedQuorum, QuorumReplica


def run(words: Sequence[str]) -> int:
    parser = WordParser(prog="kafka-metadata-quorum", description="This tool describes kraft metadata quorum status.")
    add_servers(parser, controllers=True)
    verbs = parser.add_subparsers(dest="verb", required=True)
    describe = verbs.add_parser("describe", help="describe the quorum")
    describe.add_argument("--status", action="store_true", help="a summary of the quorum")
    describe.add_argument("--replication", action="store_true", help="how far each replica is")
    describe.add_argument("--human-readable", action="store_true", help="times as durations")
    add = verbs.add_parser("add-controller", help="not supported by pykbroker's tool")
    add.add_argument("--dry-run", action="store_true", help=argparse.SUPPRESS)
    remove = verbs.add_parser("remove-controller", help="take a controller out of the voters")
    remove.add_argument("--controller-id", "-i", type=int, required=True, help="the id of the controller")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="the id of its metadata directory")
    remove.add_argument("--dry-run", action="store_true", help="say what would be done")
    options = parsed(parser, words)
    if options.verb == "add-controller":
        print(
            "add-controller is not supported by pykbroker: a controller adds itself with "
            "controller.quorum.auto.join.enable=true",
            file=sys.stderr,
        )
        return 1
    return with_cluster(options, _describe if options.verb == "describe" else _remove)


def _describe(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import quorum_replicas

    if options.status == options.replication:
        said = (
            "Only one of --status or --replication should be specified with describe sub-command"
            if options.status
            else "One of --status or --replication must be specified with describe sub-command"
        )
        raise ValueError(said)
    if options.human_readable and options.status:
        raise ValueError("The option --human-readable is only supported along with --replication")
    found = quorum_replicas.described(cluster)
    if options.status:
        print(status_text(cluster.id, found))
    else:
        now_ms = int(time.time() * 1000) if options.human_readable else None
        print(replication_text(found, now_ms), end="")
    return 0


def status_text(cluster_id: str, quorum: DescribedQuorum) -> str:
    leader = next((one for one in quorum.voters if one.id == quorum.leader), None)
    slowest = min(quorum.voters, key=lambda one: one.end_offset)
    lag = (leader.end_offset if leader is not None else slowest.end_offset) - slowest.end_offset
    if leader is None or leader.id == slowest.id:
        lag_ms = 0
    elif min(leader.last_caught_up_ms, slowest.last_caught_up_ms) < 0:
        lag_ms = -1
    else:
        lag_ms = leader.last_caught_up_ms - slowest.last_caught_up_ms
    rows = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _replicas(quorum.voters),
        "CurrentObservers": _replicas(quorum.observers),
    }
    return "\n".join(f"{name + ':':<23} {value}" for name, value in rows.items())


def _replicas(replicas: Sequence[QuorumReplica]) -> str:
    return "[" + ", ".join(map(_replica, replicas)) + "]"


def _replica(replica: QuorumReplica) -> str:
    directory = "null" if replica.directory_id is None else f'"{replica.directory_id}"'
    text = f'{{"id": {replica.id}, "directoryId": {directory}'
    if replica.endpoints:
        endpoints = ", ".join(f'"{endpoint}"' for endpoint in replica.endpoints)
        text += f', "endpoints": [{endpoints}]'
    return text + "}"


def replication_text(quorum: DescribedQuorum, now_ms: int | None) -> str:
    """Return the table of the replicas. With `now_ms`, the table has the age of each time instead of the time."""
    leader_end = next((one.end_offset for one in quorum.voters if one.id == quorum.leader), 0)
    leaders = [one for one in quorum.voters if one.id == quorum.leader]
    followers = [one for one in quorum.voters if one.id != quorum.leader]
    rows = [["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]]
    for status, replicas in (("Leader", leaders), ("Follower", followers), ("Observer", quorum.observers)):
        rows += [
            [
                str(one.id),
                one.directory_id or "AAAAAAAAAAAAAAAAAAAAAA",
                str(one.end_offset),
                str(leader_end - one.end_offset),
                _time(one.last_fetch_ms, now_ms),
                _time(one.last_caught_up_ms, now_ms),
                status,
            ]
            for one in replicas
        ]
    return table(rows)


def _time(timestamp_ms: int, now_ms: int | None) -> str:
    if now_ms is None or timestamp_ms < 0:
        return str(timestamp_ms)
    return f"{now_ms - timestamp_ms} ms ago"


def _remove(cluster: AskedCluster, options: argparse.Namespace) -> int:
    from pykbroker.tools.cluster import quorum_replicas

    what = f"KRaft controller {options.controller_id} with directory id {options.controller_directory_id}"
    if options.dry_run:
        print(f"DRY RUN of removing  {what}")
        return 0
    quorum_replicas.remove(cluster, options.controller_id, options.controller_directory_id)
    print(f"Removed {what}")
    return 0
