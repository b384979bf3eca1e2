"""The first voters of a new quorum (KIP-853), as `kafka-storage format` takes them: this node alone, or a list.

Not responsible for writing them (format.py), nor for voters that a configuration names (controller.quorum.voters).
"""

from __future__ import annotations

import re

from pykbroker.config.typed_config import Config
from pykbroker.runtime.own_name import spelled
from pykbroker_log.checkpoints import decode_uuid
from pykbroker_raft.voters import Endpoint, ReplicaKey, VoterNode, VoterSet

_MOST_PORT = 65_535
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


class InitialVotersError(ValueError):
    """The list of voters cannot be read; the text is Apache Kafka's."""


def standalone_voter(config: Config, directory_id: bytes) -> VoterSet:
    """Return a set of this node alone, at its first controller listener. A listener without a host is written as
    localhost, as by Apache Kafka's tool. The machine that formats may not be the one that runs the node, so the node
    writes its own name when it becomes the first leader."""
    point = config.listeners.advertised_controller[0]
    return _voters([(config.node_id, point.host or "localhost", point.port, directory_id)], config)


def parse_voters(text: str, config: Config) -> VoterSet:
    """Parse the voters of `--initial-controllers`: `id@host:port:directory.id`, separated by commas. Raises
    InitialVotersError."""
    found = [_parse(part.strip()) for part in text.split(",") if part]
    if not found:
        raise InitialVotersError("No voters given.")
    ids = [node_id for node_id, *_ in found]
    for node_id in ids:
        if ids.count(node_id) > 1:
            raise InitialVotersError(f"Node id {node_id} was specified more than once.")
    return _voters(found, config)


def _voters(found: list[tuple[int, str, int, bytes]], config: Config) -> VoterSet:
    name = config.listeners.controller_names[0]
    return VoterSet.of(
        VoterNode(ReplicaKey(node_id, directory_id), (Endpoint(name, host, port),))
        for node_id, host, port, directory_id in found
    )


def _parse(text: str) -> tuple[int, str, int, bytes]:
    id_text, at, rest = text.partition("@")
    if not at:
        raise InitialVotersError("No @ found in dynamic voter string.")
    if not id_text:
        raise InitialVotersError("Invalid @ at beginning of dynamic voter string.")
    node_id = _number(id_text, "node id")
    if node_id < 0:
        raise InitialVotersError(f"Invalid negative node id {node_id} in dynamic voter string.")
    if not rest:
        raise InitialVotersError("No hostname found after node id.")
    if rest.startswith("["):
        host, bracket, rest = rest[1:].partition("]")
        if not bracket:
            raise InitialVotersError("Hostname began with left bracket, but no right bracket was found.")
        if not rest.startswith(":"):
            raise InitialVotersError("Port section must start with a colon.")
        rest = rest[1:]
    else:
        host, colon, rest = rest.partition(":")
        if not colon:
            raise InitialVotersError("No colon following hostname could be found.")
    port_text, colon, id_of_directory = rest.partition(":")
    if not colon:
        raise InitialVotersError("No colon following port could be found.")
    port = _number(port_text, "port")
    if not 0 <= port <= _MOST_PORT:
        raise InitialVotersError(f"Invalid port {port} in dynamic voter string.")
    try:
        directory_id = decode_uuid(id_of_directory)
    except ValueError as error:
        raise InitialVotersError("Failed to parse directory ID in dynamic voter string.") from error
    return node_id, spelled(host), port, directory_id


def _number(text: str, what: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InitialVotersError(f"Failed to parse {what} in dynamic voter string.")
    return int(text)
