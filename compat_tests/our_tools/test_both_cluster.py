"""The tools about nodes, partitions and features, theirs and ours."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compat_tests.our_tools.both import BothTools, ours, two_names
from compat_tests.tool_server import run_shared
from compat_tests.topics import Topics
from testkit.oracle.kafka import NEWEST


def without_numbers_of_the_log(text: str) -> str:
    """Mask offsets of the metadata log, and times, which advance between two calls."""
    text = re.sub(r"\b1[6-9]\d{11}\b|\d+ ms ago *", "‹time›", text)
    text = re.sub(r"(?<=HighWatermark:)( +)\d+", r"\1‹offset›", text)
    return re.sub(r"^(\d+ +\t\S+ *\t)\d+ *\t", r"\1‹offset›\t", text, flags=re.M)


def without_blanks(text: str) -> str:
    return re.sub(r" +", " ", text)


def sorted_json(text: str) -> str:
    def change(found: re.Match[str]) -> str:
        told = json.loads(found[0])
        for broker in told["brokers"]:
            broker["logDirs"].sort(key=lambda log_dir: log_dir["logDir"])
            for log_dir in broker["logDirs"]:
                log_dir["partitions"].sort(key=lambda partition: partition["partition"])
        return json.dumps(told)

    return re.sub(r"^\{.*\}$", change, text, flags=re.M)


def sorted_names(text: str) -> str:
    """Sort the list at the end of each line."""
    return re.sub(r"(?<=partitions )(.*)", lambda found: ", ".join(sorted(found[0].split(", "))), text)


def of_4_4(text: str) -> str:
    """Remove what Apache Kafka's tool of 4.3.1 does not know: newer versions, new APIs, and a level."""
    text = re.sub(r"^\t.*\((18|28|42)\): .*$", r"‹\1›", text, flags=re.M)
    text = re.sub(r"^\t.*\(9[34]\): .*\n", "", text, flags=re.M).replace(",\n)", "\n)")
    return re.sub(r"(metadata\.version .*SupportedMaxVersion: ).*?(?=Finalized)", r"\1‹highest› ", text)


def test_api_versions(both: BothTools) -> None:
    assert "Produce(0): 0 to 13 [usable: 13]" in both.agree("broker-api-versions", change=[of_4_4]).out
    both.agree("broker-api-versions", "--none-such")
    assert both.agree("broker-api-versions", where=False).status == 1


def test_the_cluster(both: BothTools) -> None:
    assert both.agree("cluster", "cluster-id").out.startswith("Cluster ID: ")
    assert "unfenced   broker" in both.agree("cluster", "list-endpoints").out
    both.agree("cluster", "list-endpoints", "--include-fenced-brokers")
    refused = ours("cluster", ["unregister", "--bootstrap-server", both.bootstrap, "--id", "99"])
    assert refused.status == 1
    assert "BrokerIdNotRegisteredException" in refused.err


def test_verbs_of_4_4(both: BothTools) -> None:
    """Apache Kafka's tool of 4.3.1 does not have these verbs, so that of 4.4.0 is run."""
    at = ["--bootstrap-server", both.bootstrap]
    theirs = run_shared("org.apache.kafka.tools.ClusterTool", ["api-versions", *at], version=NEWEST)
    assert ours("cluster", ["api-versions", *at]).out == theirs.out
    words = ["unregister-controller", *at, "--id", "99"]
    refused = run_shared("org.apache.kafka.tools.ClusterTool", words, version=NEWEST, check=False)
    mine = ours("cluster", words)
    assert (mine.status, mine.out) == (refused.status, refused.out)
    # The levels of 4.3, with which the node begins, have no such record.
    assert mine.out == "The target cluster does not support the controller unregistration API.\n"


@pytest.fixture(scope="module")
def filled(both: BothTools, topics: Topics) -> str:
    topic = topics.create(partitions=2)
    lines = "".join(f"k{number}\tv\n" for number in range(40))
    at = ["--bootstrap-server", both.bootstrap, "--topic", topic, "--reader-property", "parse.key=true"]
    assert ours("console-producer", at, stdin=lines).status == 0
    return topic


@pytest.mark.parametrize(
    "words",
    [
        "", "--time earliest", "--time -2", "--time -3", "--time 0", "--time 99999999999999", "--time -4", "--time -5",
        "--time x", "--partitions 1", "--partitions 9", "--partitions x", "--topic-partitions a",
    ],
)  # fmt: skip
def test_offsets_of_a_topic(both: BothTools, filled: str, words: str) -> None:
    both.agree("get-offsets", "--topic", filled, *words.split())


def test_offsets_by_pattern(both: BothTools, filled: str) -> None:
    assert both.agree("get-offsets", "--topic-partitions", f"{filled}:0-1").out.startswith(f"{filled}:0:")
    both.agree("get-offsets", "--topic-partitions", f"{filled}:1-,none")
    assert both.agree("get-offsets", "--topic", "none-such").status == 1
    both.agree("get-offsets", "--exclude-internal-topics")


def test_records_are_deleted(both: BothTools, topics: Topics, tmp_path: Path) -> None:
    first, second = topics.create(), topics.create()
    for topic in (first, second):
        at = ["--bootstrap-server", both.bootstrap, "--topic", topic]
        assert ours("console-producer", at, stdin="a\nb\nc\n").status == 0
    names = {"‹t›": (first, second)}
    for topic in (first, second):
        (tmp_path / f"{topic}.json").write_text(
            json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 2}], "version": 1})
        )
    done = both.agree("delete-records", "--offset-json-file", f"{tmp_path}/‹t›.json", names=names)
    assert done.out.endswith("partition: ‹t›-0\tlow_watermark: 2\n")
    assert both.agree("get-offsets", "--topic", "‹t›", "--time", "earliest", names=names).out == "‹t›:0:2\n"
    (tmp_path / "bad.json").write_text("x")
    for name in ("bad.json", "none.json"):
        assert both.agree("delete-records", "--offset-json-file", f"{tmp_path}/{name}").status == 1


def test_log_dirs(both: BothTools, filled: str) -> None:
    shown = both.agree("log-dirs", "--describe", "--topic-list", filled, change=[sorted_json])
    assert f'"partition": "{filled}-0"' in shown.out
    assert both.agree("log-dirs", "--describe", "--broker-list", "7").status == 1
    both.agree("log-dirs", "--describe", "--broker-list", "1", "--topic-list", "none-such", change=[sorted_json])
    assert both.agree("log-dirs").status == 1


def test_elections(both: BothTools, filled: str, tmp_path: Path) -> None:
    one = ["--topic", filled, "--partition", "0"]
    for kind in ("preferred", "unclean"):
        done = both.agree("leader-election", "--election-type", kind, *one)
        assert done.out == f"Valid replica already elected for partitions {filled}-0\n"
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": filled, "partition": number} for number in (0, 1)]}))
    both.agree("leader-election", "--election-type", "preferred", "--path-to-json-file", str(file),
               change=[sorted_names])  # fmt: skip
    both.agree("leader-election", "--election-type", "preferred", "--all-topic-partitions")
    missing = both.agree("leader-election", "--election-type", "preferred", "--topic", "none-such", "--partition", "0",
                         change=[lambda text: text.partition("Exception: ")[0]])  # fmt: skip
    assert missing.status == 1


@pytest.mark.parametrize(
    "words",
    [
        "--election-type preferred",
        "--election-type none --all-topic-partitions",
        "--election-type preferred --topic x",
        "--topic x --partition 0",
        "--election-type preferred --all-topic-partitions --topic x --partition 0",
    ],
)
def test_elections_that_are_refused(both: BothTools, words: str) -> None:
    assert both.agree("leader-election", *words.split()).status == 1


def test_the_quorum(both: BothTools) -> None:
    for words in (["--status"], ["--replication"], ["--replication", "--human-readable"]):
        change = [without_numbers_of_the_log, without_blanks]
        both.agree("metadata-quorum", "describe", *words, change=change, names=two_names())
    both.agree("metadata-quorum", "describe", "--status", "--replication")
    gone = ["remove-controller", "--controller-id", "7", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ"]
    assert both.agree("metadata-quorum", *gone, "--dry-run").out.startswith("DRY RUN of removing  KRaft controller 7")
    refused = ours("metadata-quorum", ["--bootstrap-server", both.bootstrap, *gone])
    assert refused.status == 1
    assert "VoterNotFoundException" in refused.err


def test_features(both: BothTools) -> None:
    both.agree("features", "describe", change=[lambda text: re.sub(r"Epoch: \d+", "Epoch: ‹offset›", of_4_4(text))])
    assert both.agree("features", "upgrade", "--feature", "group.version=1").out == "group.version was upgraded to 1.\n"
    both.agree("features", "upgrade", "--release-version", "4.3", "--dry-run")
    both.agree("features", "downgrade", "--feature", "transaction.version=1", "--dry-run")
    both.agree("features", "disable", "--feature", "group.version", "--dry-run")
    words_of_each = [lambda text: re.sub(r"(?<=to 1\. ).*", "‹words›", text)]
    assert both.agree("features", "upgrade", "--feature", "none.such=1", change=words_of_each).status == 1
    for words in (["version-mapping"], ["version-mapping", "--release-version", "4.0"],
                  ["feature-dependencies", "--feature", "transaction.version=2"]):  # fmt: skip
        both.agree("features", *words)
