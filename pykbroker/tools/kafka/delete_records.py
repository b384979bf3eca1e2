"""kafka-delete-records: delete the records of partitions up to an offset."""

from __future__ import annotations

from collections.abc import Sequence

from pykbroker.tools.cluster.failure import AskFailed
from pykbroker.tools.cluster.json_input import partitions_of, read_json, repeated
from pykbroker.tools.kafka.reach import BOOTSTRAP, COMMAND_CONFIG, exit_status, opened
from pykbroker.tools.kafka.tool_options import Accepted, Options

OPTIONS = Options(
    "This tool helps to delete records of the given partitions down to the specified offset.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Accepted("offset-json-file", '{"partitions": [{"topic": ..., "partition": ..., "offset": ...}]}', "file"),
    ],
)


def run(words: Sequence[str]) -> int:
    return exit_status(lambda: _run(words))


def _run(words: Sequence[str]) -> None:
    from pykbroker.tools.cluster import log_offsets

    given = OPTIONS.parse(words)
    OPTIONS.help_or_version(words, given)
    OPTIONS.require(given, "bootstrap-server", "offset-json-file")
    entries = partitions_of(read_json(given.text("offset-json-file") or ""), "offset")
    places = [(topic, number) for topic, number, _ in entries]
    if twice := repeated(places):
        raise ValueError(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    wanted = {(topic, number): int(entry["offset"]) for topic, number, entry in entries}
    with opened(given) as cluster:
        print("Executing records delete operation")
        outcome = log_offsets.delete_before(cluster, wanted)
    print("Records delete operation completed:")
    for (topic, number), found in sorted(outcome.items()):
        if isinstance(found, AskFailed):
            print(f"partition: {topic}-{number}\terror: {found.name}: {found}")
        else:
            print(f"partition: {topic}-{number}\tlow_watermark: {found}")
