"""kafka-client-metrics: which metrics the cluster asks its clients to push (KIP-714).

The subscriptions are configurations of the resource type CLIENT_METRICS. pykbroker keeps them but requests no metrics
from clients. A cluster of Apache Kafka requests the metrics.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.kafka.reach import BAD_START, BOOTSTRAP, COMMAND_CONFIG, opened, said_of
from pykbroker.tools.kafka.tool_options import Accepted, Given, Options, say_error

if TYPE_CHECKING:
    from pykbroker.tools.cluster.asked_cluster import AskedCluster

_ACTIONS: Final = ("alter", "delete", "describe", "list")
_CHANGES: Final = ("generate-name", "interval", "match", "metrics")

OPTIONS = Options(
    "This tool helps to manipulate and describe client metrics configurations.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("alter", "Change the configuration of a resource."),
        Accepted("delete", "Delete the configuration of a resource."),
        Accepted("describe", "Print the configuration of a resource, or of all."),
        Accepted("generate-name", "Make a name for the resource."),
        Accepted("interval", "Milliseconds between two pushes; an empty text resets it.", "push interval"),
        Accepted("list", "List the resources."),
        Accepted("match", "Which clients: client_id, client_instance_id, client_software_name, "
                 "client_software_version, client_source_address, client_source_port.", "k1=v1,k2=v2"),
        Accepted("metrics", "Beginnings of names of metrics.", "m1,m2"),
        Accepted("name", "The name of the resource.", "name"),
    ],
)  # fmt: skip


def run(words: Sequence[str]) -> int:
    given = OPTIONS.read(words)
    try:
        _check(given)
        cluster = opened(given)
    except BAD_START as error:
        print(said_of(error), file=sys.stderr)
        return 1
    with cluster:
        try:
            _act(cluster, given)
        except AskFailed as error:
            print(f"Error while executing client metrics command : {error}")
            say_error(error, "org.apache.kafka.tools.ClientMetricsCommand")
            return 1
    return 0


def _check(given: Given) -> None:
    if sum(map(given.has, _ACTIONS)) != 1:
        OPTIONS.end_with_usage("Command must include exactly one action: --alter, --delete, --describe or --list.")
    if not given.has("bootstrap-server"):
        raise ValueError("--bootstrap-server must be specified.")
    for action in ("delete", "describe"):
        OPTIONS.exclude(given, action, *_CHANGES)
    OPTIONS.exclude(given, "list", "name", *_CHANGES)
    if given.has("alter"):
        if given.has("name") == given.has("generate-name"):
            raise ValueError("One of --name or --generate-name must be specified with --alter.")
        try:
            int(given.text("interval") or "0")
        except ValueError:
            raise ValueError("Invalid interval value. Enter an integer, or leave empty to reset.") from None
    if given.has("delete") and not given.has("name"):
        raise ValueError("A client metrics resource name must be specified with --delete.")


def _act(cluster: AskedCluster, given: Given) -> None:
    from pykbroker.tools.cluster import configs
    from pykbroker.tools.cluster.configs import ResourceKind

    name = given.text("name") or ""
    if given.has("alter"):
        name = name or _new_name()
        wanted = {
            "interval.ms": given.texts("interval"),
            "metrics": given.texts("metrics"),
            "match": given.texts("match"),
        }
        texts = {key: ",".join(found) for key, found in wanted.items() if found}
        changes = configs.changes_of({key: text or None for key, text in texts.items()})
        configs.alter(cluster, (ResourceKind.CLIENT_METRICS, name), changes)
        print(f"Altered client metrics config for {name}.")
    elif given.has("delete"):
        changes = configs.changes_of({}, (key for key, _ in _entries(cluster, name)))
        configs.alter(cluster, (ResourceKind.CLIENT_METRICS, name), changes)
        print(f"Deleted client metrics config for {name}.")
    else:
        names = configs.resource_names(cluster, ResourceKind.CLIENT_METRICS)
        if given.has("list"):
            print("\n".join(names))
        elif given.has("name") and name not in names:
            print(f"The client metric resource {name} doesn't exist and doesn't have dynamic config.")
        else:
            _describe(cluster, [name] if given.has("name") else names)


def _describe(cluster: AskedCluster, names: Sequence[str]) -> None:
    for name in names:
        print(f"Client metrics configs for {name} are:")
        for key, value in _entries(cluster, name):
            print(f"  {key}={'null' if value is None else value}")


def _entries(cluster: AskedCluster, name: str) -> list[tuple[str, str | None]]:
    from pykbroker.tools.cluster import configs
    from pykbroker.tools.cluster.configs import ResourceKind

    resource = (ResourceKind.CLIENT_METRICS, name)
    return [(entry.name, entry.value) for entry in configs.described(cluster, [resource])[resource]]


def _new_name() -> str:
    from random import SystemRandom

    from pykbroker_wire.primitives import random_uuid, uuid_to_str

    return uuid_to_str(random_uuid(SystemRandom()))
