"""The part of a tool's output that is compared, without the values that each cluster chooses, and the accepted
differences.

Every id, address and directory of one cluster becomes the same word as that of the other cluster. DIFFERENCES lists
what else may differ, each with its reason, and docs/differential.md shows them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compat_tests.tool_server import Ended
from pykbroker.api import TABLE
from pykbroker.dispatch.rows import On
from pykbroker_wire.apis import APIS

#: An id in base64; a word of a message with the same length is equal for both clusters.
UUID = re.compile(r"(?<![\w.-])[\w-]{22}(?![\w-])")
_BROKER = re.compile(r"^[^\n]* \(id: .*?^\)\n", re.M | re.S)


@dataclass(frozen=True, slots=True)
class Difference:
    """`tools` are the main classes that print it; an empty tuple means all. `change` takes the text and returns what is
    compared."""

    tools: tuple[str, ...]
    what: str
    reason: str
    change: Callable[[str], str]


def _replaced(pattern: str, by: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, by, text, flags=re.M)


def _sorted(pattern: str, separator: str) -> Callable[[str], str]:
    """Sort the list that is group 1 of the pattern."""

    def change(found: re.Match[str]) -> str:
        ordered = separator.join(sorted(found[1].split(separator)))
        return found[0].replace(found[1], ordered)

    return lambda text: re.sub(pattern, change, text, flags=re.M)


def _without_what_is_not_served(text: str) -> str:
    served = {APIS[row.key].name for row in TABLE if row.on & On.BROKER}
    lines = text.split("\n")
    return "\n".join(line for line in lines if not (found := re.match(r"\t(\w+)\(\d+\): ", line)) or found[1] in served)


def _sorted_brokers(text: str) -> str:
    """Sort the blocks of brokers by id. A block is `address (id: 1 …) -> (`, the lines of its requests, and `)`."""
    ordered = iter(sorted(_BROKER.findall(text), key=lambda block: re.findall(r"\(id: (\d+)", block)))
    # The last request of a broker has no comma.
    return _BROKER.sub(lambda _: next(ordered), text).replace(",\n", "\n")


def _sorted_log_dirs(text: str) -> str:
    def change(found: re.Match[str]) -> str:
        told = json.loads(found[0])
        for broker in told["brokers"]:
            for log_dir in broker["logDirs"]:
                log_dir["partitions"].sort(key=lambda partition: partition["partition"])
        return json.dumps(told, indent=1)

    return re.sub(r"^\{.*\}$", change, text, flags=re.M)


_LOG = "an offset of the metadata log, which has other records in each cluster"
_SET = "the order in which a hash set is walked"

DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        (),
        "stack traces and log lines of the tool",
        "they tell of the tool's own code and of its connections",
        _replaced(
            r"^(\s+at .*|\s+\.\.\. \d+ more|\[.*\] (WARN|INFO) .*)\n|^\[kafka-admin-client-thread.* ERROR .*\n", ""
        ),
    ),
    Difference(
        (), "times of the clock", "each cluster is asked at its own time", _replaced(r"\b1[6-9]\d{11}\b", "‹time›")
    ),
    Difference(
        ("TopicCommand", "LeaderElectionCommand"),
        "the words of an error behind its name",
        "each implementation has its own",
        _replaced(r"(?<=Exception: ).*|(?<=Error while executing topic command : ).*", "‹words›"),
    ),
    Difference(
        ("GetOffsetShell",),
        "what it did before it gave up",
        "it asks again as fast as it is answered, or waits for a node that it can ask",
        _replaced(r"(?<=TimeoutException: ).*", "‹call›"),
    ),
    Difference(
        ("TopicCommand", "MetadataShell"),
        "the order of the ISR",
        "Apache Kafka's leader proposes an ISR in the order of a set that each JVM orders anew",
        lambda text: _sorted(r"isr=\[([\d, ]+)\]", ", ")(_sorted(r"Isr: ([\d,]+)", ",")(text)),
    ),
    Difference(
        ("MetadataQuorumCommand",),
        "HighWatermark, LogEndOffset, Lag, MaxFollowerLag",
        _LOG,
        lambda text: _replaced(r"^(\d+ +\t\S+ *\t)\d+ *\t\d+ *\t", r"\1‹offset›\t‹lag›\t")(
            _replaced(r"^(HighWatermark|MaxFollowerLag): +\d+", r"\1: ‹offset›")(text)
        ),
    ),
    Difference(
        ("MetadataQuorumCommand",),
        "LeaderEpoch",
        "a busy machine may elect twice",
        _replaced(r"^LeaderEpoch: +\d+", "LeaderEpoch: ‹epoch›"),
    ),
    Difference(
        ("MetadataQuorumCommand",),
        "MaxFollowerLagTimeMs, and how long ago a follower fetched",
        "each cluster is asked at its own time",
        _replaced(r"\b\d+ ms ago *|(?<=MaxFollowerLagTimeMs: )  \d+", "‹time›"),
    ),
    Difference(
        ("MetadataQuorumCommand",),
        "the order of voters in an error",
        _SET,
        _sorted(r"(?<=set of voters \[)(.*)(?=\))", "), "),
    ),
    Difference(("FeatureCommand",), "Epoch", _LOG, _replaced(r"\bEpoch: \d+", "Epoch: ‹offset›")),
    Difference(
        ("FeatureCommand",),
        "the row of streams.version",
        "pykbroker keeps groups of this kind, and does not say that it serves them",
        _replaced(r"^Feature: streams\.version .*\n", ""),
    ),
    Difference(
        ("BrokerApiVersionsCommand",),
        "requests that pykbroker does not serve",
        "UNSUPPORTED is the statement (docs/apis.md)",
        _without_what_is_not_served,
    ),
    Difference(("BrokerApiVersionsCommand",), "the order of the brokers", _SET, _sorted_brokers),
    Difference(
        ("LogDirsCommand",),
        "the order of the partitions of a directory",
        "the order in which a hash map is walked",
        _sorted_log_dirs,
    ),
    Difference(
        ("ReassignPartitionsCommand",),
        "the proposed assignment",
        "the tool draws it by lot; that it can be executed is tested apart",
        _replaced(r"(?<=Proposed partition reassignment configuration\n)\{.*\}", "‹proposal›"),
    ),
    Difference(
        ("MetadataShell",),
        "epochs of brokers",
        _LOG,
        _replaced(r"(?<=BrokerRegistration\(id=)(\d+), epoch=\d+", r"\1, epoch=‹offset›"),
    ),
    Difference(
        ("MetadataShell",),
        "that no directory is cordoned",
        "after each registration Apache Kafka writes once what holds already",
        _replaced(r"\bcordonedDirectories=null", "cordonedDirectories=[]"),
    ),
    Difference(
        ("MetadataShell",),
        "partitionEpoch",
        "it counts changes of the ISR, of which each leader puts as many together as it likes",
        _replaced(r"\bpartitionEpoch=\d+", "partitionEpoch=‹count›"),
    ),
    Difference(
        ("MetadataShell",),
        "incarnation ids",
        "the two halves of a combined node share one in pykbroker, and each has its own in Apache Kafka",
        _replaced(r"\bincarnationId=[\w-]{22}", "incarnationId=‹id›"),
    ),
)


def compared(main: str, ended: Ended, texts: Mapping[str, str]) -> str:
    """Return what a tool printed, without what may differ. `texts` maps words of the cluster to their replacements."""
    printed = f"ended with {ended.status}\n{ended.out}--- on standard error\n{ended.err}"
    for text, name in texts.items():
        # A port is matched only as a whole number, not as the end of another.
        printed = re.sub(rf"(?<!\d){re.escape(text)}(?!\d)", name, printed)
    tool = main.rpartition(".")[2]
    for difference in DIFFERENCES:
        if not difference.tools or tool in difference.tools:
            printed = difference.change(printed)
    return printed


def with_symbols(one: str, other: str) -> tuple[str, str]:
    """Return two texts in which the ids that only one of them has are numbered by their order in the text."""
    common = set(UUID.findall(one)) & set(UUID.findall(other))

    def numbered(text: str) -> str:
        known: dict[str, str] = {}

        def symbol(found: re.Match[str]) -> str:
            return found[0] if found[0] in common else known.setdefault(found[0], f"‹id {len(known) + 1}›")

        return UUID.sub(symbol, text)

    return numbered(one), numbered(other)
