"""kafka-acls: list, add and remove ACLs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.acl_options import (
    OPTIONS,
    AclEntry,
    AclPattern,
    acl_of,
    check_options,
    entry_of,
    filter_of,
    pattern_of,
    patterns,
    principals,
    wanted_entries,
)
from pykbroker.tools.kafka.reach import BAD_START, opened, said_of
from pykbroker.tools.kafka.tool_options import Given

if TYPE_CHECKING:
    from pykbroker.security.acl import Acl
    from pykbroker.tools.cluster.asked_cluster import AskedCluster


def run(words: Sequence[str]) -> int:
    given = OPTIONS.read(words)
    check_options(given)
    if given.has("command-config") and given.text("command-config") is None:
        print("Did not load any properties since the property file is not specified")
    work = _add if given.has("add") else _remove if given.has("remove") else _list
    try:
        with opened(given, of_controllers=given.has("bootstrap-controller")) as cluster:
            work(cluster, given)
    except AskFailed as error:
        # Apache Kafka's tool prints a stack trace after this line.
        print(f"Error while executing ACL command: {error.name}: {error}")
        return 1
    except BAD_START as error:
        print(f"Error while executing ACL command: {said_of(error)}")
        return 1
    return 0


def _add(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import acls

    for pattern, entries in wanted_entries(given).items():
        there = {entry_of(acl) for acl in acls.described(cluster, filter_of(pattern))}
        for entry in entries:
            if entry in there:
                print(f"Acl (pattern={pattern}, entry={entry}) already exists.")
        fresh = [entry for entry in entries if entry not in there]
        if fresh:
            print(f"Adding ACLs for resource `{pattern}`: \n {_lines(fresh)}\n")
            acls.create(cluster, [acl_of(pattern, entry) for entry in fresh])


def _remove(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import acls

    for pattern, entries in wanted_entries(given).items():
        if entries:
            question = f"Are you sure you want to remove ACLs: \n {_lines(entries)}\n from resource filter `{pattern}`?"
        else:
            question = f"Are you sure you want to delete all ACLs for resource filter `{pattern}`?"
        if given.has("force") or _confirmed(question):
            acls.delete(cluster, [filter_of(pattern, entry) for entry in entries] or [filter_of(pattern)])


def _confirmed(question: str) -> bool:
    """Ask the user. The end of standard input counts as a no, while Apache Kafka's tool fails without a terminal."""
    print(f"{question} (y/n)", flush=True)
    return sys.stdin.readline().strip().lower() == "y"


def _list(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import acls

    wanted = principals(given, "principal")
    filters = [filter_of(pattern) for pattern in patterns(given, needed=False)] or [acls.ANY_ACL]
    found = list(dict.fromkeys(acl for one in filters for acl in acls.described(cluster, one)))
    if not wanted:
        _print(found)
    for principal in wanted:
        print(f"ACLs for principal `{principal}`")
        _print(acl for acl in found if acl.principal == principal)


def _print(found: Iterable[Acl]) -> None:
    by_pattern: dict[AclPattern, list[AclEntry]] = {}
    for acl in found:
        by_pattern.setdefault(pattern_of(acl), []).append(entry_of(acl))
    for pattern, entries in by_pattern.items():
        print(f"Current ACLs for resource `{pattern}`:\n{_lines(entries)}\n")


def _lines(entries: Iterable[AclEntry]) -> str:
    return "\n".join(f"\t{entry}" for entry in entries)
