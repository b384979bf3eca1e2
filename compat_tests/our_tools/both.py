"""Runs one command line with Apache Kafka's tool and with ours, against the same node, and compares their output.

A command that changes something is run with each tool, with names of its own each time. `‹t›` in the words stands for
one topic or group of each tool, and becomes the same word in the compared output.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compat_tests.tool_server import Ended, ToolServer
from pykbroker.tools.kafka.__main__ import main
from testkit.clients import wait_until

#: The records in each partition of the topic `filled`.
COUNT = 10

#: Apache Kafka's main class for each name.
CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "acls": "org.apache.kafka.tools.AclCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
    "console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "groups": "org.apache.kafka.tools.GroupsCommand",
    "broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "cluster": "org.apache.kafka.tools.ClusterTool",
    "features": "org.apache.kafka.tools.FeatureCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
}

_UUID = re.compile(r"(?<![\w.-])[\w-]{22}(?![\w-])")
_NOISE = re.compile(
    r"\s+at |Caused by:|\s+Suppressed:|\s+\.\.\. \d+ more|\[.*\] (WARN|INFO) |WARN |The consumer rebalance protocol"
)
Change = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Printed:
    """The compared part of a tool's result."""

    status: int
    out: str
    err: str


def ours(tool: str, words: Sequence[str], stdin: str = "") -> Ended:
    """Run our tool in this process, so that its imports are loaded only once."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main([tool, *words])
            except SystemExit as ended:
                status = int(ended.code or 0)
        out.flush()
    finally:
        sys.stdin = before
    assert isinstance(out.buffer, io.BytesIO)
    return Ended(status, out.buffer.getvalue().decode(), err.getvalue())


def said(err: str) -> str:
    """Return standard error without the lines that only one of them prints: stack traces, connection news, texts of
    options."""
    err = re.split(r"^(?:Option(?: \(\* = required\))? +Description|usage: )", err, maxsplit=1, flags=re.M)[0]
    lines = []
    for line in err.splitlines():
        if _NOISE.match(line):
            continue
        # A logger's line: the class of the exception counts if it is one of the protocol's errors.
        found = re.match(r"(?:\[[\w-]+\] )?ERROR (?:[\w.$]+ - )?(?:([\w.$]+(?:Exception|Error)): )?(.*)$", line)
        if found is not None:
            name, words = found[1] or "", re.sub(r" \([\w.$]+\)$", "", found[2])
            # Apache Kafka's tool finds a wrong value itself, before the broker does, under another name.
            is_known = ".common.errors." in name and not name.endswith("InvalidConfigurationException")
            lines.append(f"ERROR {name if is_known else ''}: {words}".rstrip())
        elif "common.errors." in line:
            lines.append(line.replace("java.util.concurrent.ExecutionException: ", "").rstrip())
        elif not re.match(r"(java|joptsimple|org\.apache\.kafka\.tools)\.[\w.$]+Exception", line):
            lines.append(line.rstrip())
    # The JVM that runs many tools prints the last line once more.
    kept = [line for place, line in enumerate(lines) if line and (place == 0 or line != lines[place - 1])]
    return "\n".join(kept)


def sorted_lines(text: str) -> str:
    """Sort the lines that Apache Kafka prints in the order of a hash map."""
    return "\n".join(sorted(text.splitlines()))


class BothTools:
    """`both.agree("topics", "--list")` checks for the same status and the same output of both; returns those of
    ours."""

    def __init__(self, bootstrap: str, server: ToolServer) -> None:
        self.bootstrap = bootstrap
        self._server = server

    def agree(
        self,
        tool: str,
        *words: str,
        where: bool = True,
        change: Sequence[Change] = (),
        names: dict[str, tuple[str, str]] | None = None,
    ) -> Printed:
        """`where`: add the bootstrap option; `change`: functions that make an output comparable."""
        at = ["--bootstrap-server", self.bootstrap] if where else []
        # This tool alone wants its verb first.
        verb, rest = (words[:1], words[1:]) if tool == "cluster" else ((), words)
        given = dict(names or {})

        def filled(place: int) -> list[str]:
            found = list(rest)
            for word, pair in given.items():
                found = [text.replace(word, pair[place]) for text in found]
            return [*verb, *at, *found]

        def compared(ended: Ended, place: int) -> Printed:
            out, err = ended.out, said(ended.err)
            for word, pair in given.items():
                out, err = out.replace(pair[place], word), err.replace(pair[place], word)
            for one in change:
                out = one(out)
            if given:
                out = _UUID.sub("‹id›", out)
            return Printed(ended.status, out, err)

        theirs = compared(self._server.run(CLASSES[tool], filled(0)), 0)
        mine = compared(ours(tool, filled(1)), 1)
        assert mine == theirs, f"{tool} {' '.join(words)}\n--- Apache Kafka\n{theirs}\n--- ours\n{mine}"
        return mine

    def each(
        self, tool: str, *words: str, where: bool = True, names: dict[str, tuple[str, str]] | None = None
    ) -> tuple[Ended, Ended]:
        """Return the results of both, Apache Kafka's tool first, for a test that compares them itself."""
        at = ["--bootstrap-server", self.bootstrap] if where else []

        def filled(place: int) -> list[str]:
            found = [*at, *words]
            for word, pair in (names or {}).items():
                found = [text.replace(word, pair[place]) for text in found]
            return found

        return self._server.run(CLASSES[tool], filled(0)), ours(tool, filled(1))

    def wait_for_topics(self, names: dict[str, tuple[str, str]], partitions: int) -> None:
        """Wait until the node has this number of partitions of both topics, or with 0 until they are deleted."""

        def told(topic: str) -> int:
            shown = ours(
                "topics", ["--bootstrap-server", self.bootstrap, "--describe", "--if-exists", "--topic", topic]
            )
            return len(re.findall(r"\tPartition: \d+\tLeader: \d+", shown.out))

        for pair in names.values():
            for topic in pair:
                wait_until(lambda topic=topic: told(topic) == partitions, f"{topic} has {partitions} partitions")  # type: ignore[misc]

    def agree_on_status(self, tool: str, *words: str) -> None:
        """Check refusals whose text Apache Kafka takes from the order of a hash set: status and output are the same,
        and ours gives a reason."""
        given = ["--bootstrap-server", self.bootstrap, *words]
        theirs, mine = self._server.run(CLASSES[tool], given), ours(tool, given)
        assert (mine.status, mine.out) == (theirs.status, theirs.out)
        assert mine.out or mine.err


def two_names(kind: str = "t") -> dict[str, tuple[str, str]]:
    """Return a name for each tool, of the same length; `‹t›` stands for it."""
    same = uuid.uuid4().hex[:8]
    return {f"‹{kind}›": (f"j{kind}-{same}", f"o{kind}-{same}")}
