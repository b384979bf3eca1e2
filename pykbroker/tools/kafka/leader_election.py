"""kafka-leader-election: elect preferred leaders, or unclean leaders."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.json_input import partitions_of, read_json, repeated
from pykbroker.tools.kafka.reach import BOOTSTRAP, COMMAND_CONFIG, exit_status, reached
from pykbroker.tools.kafka.tool_options import Accepted, Given, OptionError, Options

_SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")

OPTIONS = Options(
    "This tool attempts to elect a new leader for a set of topic partitions. The type of elections supported are "
    "preferred replicas and unclean replicas.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("admin.config", "The old name of --command-config.", "file"),
        Accepted("all-topic-partitions", "Every partition that needs an election."),
        Accepted("election-type", "preferred, or unclean.", "type"),
        Accepted("partition", "The partition of --topic.", "partition", int),
        Accepted("path-to-json-file", '{"partitions": [{"topic": ..., "partition": ...}]}', "file"),
        Accepted("topic", "The topic.", "topic"),
    ],
)


def run(words: Sequence[str]) -> int:
    return exit_status(lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    from pykbroker.tools.cluster import leader_choice

    given = OPTIONS.parse(words)
    OPTIONS.help_or_version(words, given)
    kind = _check(given)
    places = _places(given)
    file = given.text(OPTIONS.both(given, "command-config", "admin.config"))
    with reached(given.text("bootstrap-server") or "", file) as cluster:
        number = leader_choice.UNCLEAN if kind == "UNCLEAN" else leader_choice.PREFERRED
        outcome = leader_choice.elect(cluster, number, places)
    return say_outcome(kind, outcome)


def say_outcome(kind: str, outcome: dict[tuple[str, int], AskFailed | None]) -> int:
    """Print the result of an election; returns the exit status."""
    from pykbroker_wire.errors import ErrorCode

    names = {place: f"{place[0]}-{place[1]}" for place in outcome}
    elected = [names[place] for place, error in outcome.items() if error is None]
    needless = [
        names[place]
        for place, error in outcome.items()
        if error is not None and error.code == ErrorCode.ELECTION_NOT_NEEDED
    ]
    failures = {
        names[place]: error for place, error in outcome.items() if error is not None and names[place] not in needless
    }
    if elected:
        print(f"Successfully completed leader election ({kind}) for partitions {', '.join(elected)}")
    if needless:
        print(f"Valid replica already elected for partitions {', '.join(needless)}")
    for name, error in failures.items():
        print(f"Error completing leader election ({kind}) for partition: {name}: {error.name}: {error}")
    if failures:
        print(f"{len(failures)} replica(s) could not be elected", file=sys.stderr)
    return 1 if failures else 0


def _check(given: Given) -> str:
    kind = (given.text("election-type") or "").upper()
    if given.has("election-type") and kind not in ("PREFERRED", "UNCLEAN"):
        raise OptionError(f"Cannot parse argument '{given.text('election-type')}' of option election-type")
    missing = [option for option in ("bootstrap-server", "election-type") if not given.has(option)]
    if given.has("topic") and not given.has("partition"):
        missing.append("partition")
    if missing:
        raise ValueError(f"Missing required option(s): {', '.join(missing)}")
    if sum(map(given.has, _SCOPES)) != 1:
        raise ValueError(f"One and only one of the following options is required: {', '.join(_SCOPES)}")
    if given.has("partition") and not given.has("topic"):
        raise ValueError("Option partition is only allowed if topic is used")
    return kind


def _places(given: Given) -> list[tuple[str, int]] | None:
    """Return the named partitions, or None for all."""
    if given.has("all-topic-partitions"):
        return None
    if given.has("topic"):
        return [(given.text("topic") or "", given.number("partition") or 0)]
    places = [(topic, number) for topic, number, _ in partitions_of(read_json(given.text("path-to-json-file") or ""))]
    if twice := repeated(places):
        raise ValueError(f"Replica election data contains duplicate partitions: [{', '.join(twice)}]")
    return places
