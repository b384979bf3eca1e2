"""A pure question about the metadata of all nodes: which replicas of a cluster are not in sync yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pykbroker.metadata.image import MetadataImage


def missing(images: Mapping[int, MetadataImage], nodes: Collection[int], topics: Iterable[str]) -> str:
    """Return a text about the first thing that is missing, or "" if there is none. `images`: the metadata of each node
    that serves, by its id. `nodes`: the nodes that are to serve, whose replicas are to be in sync. `topics`: names, or
    none for all topics."""
    if len(images) < len(nodes):
        return f"nodes {sorted({*nodes} - images.keys())} do not serve"
    newest = max(images.values(), key=lambda image: image.offset)
    fenced = [number for number in images if not newest.broker_is_active(number)]
    if fenced:
        return f"nodes {fenced} are fenced"
    behind = [number for number, image in images.items() if image.offset < newest.offset]
    if behind:
        return f"nodes {behind} have older metadata"
    for name in topics or newest.topics.by_name:
        topic = newest.topics.by_name.get(name)
        if topic is None:
            return f"there is no topic {name}"
        for index, partition in topic.partitions.items():
            if not set(partition.replicas) & set(nodes) <= set(partition.isr) or partition.leader < 0:
                return f"{name}-{index} has replicas {partition.replicas}, ISR {partition.isr}"
    return ""
