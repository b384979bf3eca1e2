"""kafka-log-dirs: the log directories of brokers, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pykbroker.tools.kafka.reach import BOOTSTRAP, COMMAND_CONFIG, exit_status, opened
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options

if TYPE_CHECKING:
    from pykbroker.tools.cluster.replicas_on_disk import DescribedLogDir

OPTIONS = Options(
    "This tool helps to query log directory usage on the specified brokers.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("broker-list", "Only these brokers.", "0,1,..."),
        Accepted("describe", "Describe the log directories."),
        Accepted("topic-list", "Only these topics.", "topic,..."),
    ],
)


def run(words: Sequence[str]) -> int:
    return exit_status(lambda: _run(words))


def _run(words: Sequence[str]) -> None:
    from pykbroker.tools.cluster import replicas_on_disk

    given = OPTIONS.parse(words)
    OPTIONS.help_or_version(words, given)
    OPTIONS.require(given, "bootstrap-server", "describe")
    wanted = [int(text) for text in _listed(given, "broker-list")]
    with opened(given) as cluster:
        existing = [node.id for node in cluster.nodes()]
        if missing := [broker for broker in wanted if broker not in existing]:
            raise ValueError(
                f"ERROR: The given brokers do not exist from --broker-list: {_joined(missing)}. Current existent "
                f"brokers: {_joined(existing)}"
            )
        print("Querying brokers for log directories information")
        found = replicas_on_disk.described(cluster, wanted or existing, _listed(given, "topic-list"))
    print(f"Received log directory information from brokers {_joined(wanted or existing)}")
    print(log_dirs_json(found))


def log_dirs_json(found: Mapping[int, Sequence[DescribedLogDir]]) -> str:
    brokers = [
        {
            "broker": broker,
            "logDirs": [
                {
                    "partitions": [
                        {
                            "partition": f"{replica.topic}-{replica.partition}",
                            "size": replica.size_bytes,
                            "offsetLag": replica.offset_lag,
                            "isFuture": replica.is_future,
                        }
                        for replica in log_dir.replicas
                    ],
                    "error": None if log_dir.error is None else log_dir.error.name,
                    "logDir": log_dir.path,
                }
                for log_dir in log_dirs
            ],
        }
        for broker, log_dirs in found.items()
    ]
    return json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":"))


def _listed(given: Given, option: str) -> list[str]:
    return [text for text in (given.text(option) or "").split(",") if text]


def _joined(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
