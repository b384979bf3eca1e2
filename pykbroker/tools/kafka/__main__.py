"""The entry of every tool: finds the tool by name, runs it, and returns its exit status.

It imports little, so that --help and --version are answered before a client is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

from pykbroker.entry.lost_output import watched_output

#: NAME in `kafka-NAME.sh`, and a description of the tool.
TOOLS = {
    "topics": "create, delete, describe or change topics",
    "acls": "list, add and remove the rules of which principal may do what",
    "configs": "describe and change the configuration of topics, brokers, clients and groups",
    "console-producer": "write lines of standard input to a topic",
    "console-consumer": "print the records of topics",
    "consumer-groups": "list, describe, delete and reset consumer groups",
    "share-groups": "list, describe, delete and reset share groups",
    "console-share-consumer": "print the records that a share group gives to a member",
    "groups": "list the groups of all types",
    "producer-perf-test": "send records and time their acknowledgements",
    "consumer-perf-test": "read records and say how fast",
    "share-consumer-perf-test": "read records as members of a share group and say how fast",
    "verifiable-producer": "send numbers and print an event for each acknowledgement",
    "verifiable-consumer": "read a topic in a group and print events",
    "verifiable-share-consumer": "read a topic in a share group and print events",
    "e2e-latency": "time records from a producer to a consumer",
    "client-metrics": "describe and change which metrics clients are asked for",
    "broker-api-versions": "list the requests that each broker serves",
    "get-offsets": "print the offsets of partitions",
    "metadata-quorum": "describe and change the quorum of the controllers",
    "cluster": "print the id of the cluster, list endpoints and API versions, unregister a node",
    "features": "describe and change finalized features",
    "leader-election": "elect leaders of partitions",
    "reassign-partitions": "move partitions between brokers",
    "log-dirs": "describe log directories",
    "delete-records": "delete the records of partitions up to an offset",
    "transactions": "list, describe and abort transactions",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one tool; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] not in TOOLS:
        said = f"there is no tool {words[0]}" if words else "name a tool"
        print(f"{said}; there are: {', '.join(TOOLS)}", file=sys.stderr)
        return 1
    name, *rest = words
    tool = import_module(f"pykbroker.tools.kafka.{name.replace('-', '_')}")
    try:
        with watched_output():
            status: int = tool.run(rest)
    except OSError as error:
        # The reader of the pipe has closed it, or the disk is full.
        from pykbroker.tools.kafka.reach import said_of

        if not isinstance(error, BrokenPipeError):
            print(said_of(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


if __name__ == "__main__":
    sys.exit(main())
