"""kafka-consumer-groups: the exit statuses of command lines that it refuses, which are Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pykbroker.testing import Broker
from pykbroker.tools.kafka.__main__ import main

USAGE = "Option"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", partitions=2)
        yield broker


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (
            "--reset-offsets --group a --topic orders:0,x --to-earliest --dry-run",
            "Invalid partition 'x' specified in topic arg 'orders:0,x''",
        ),
        (
            "--reset-offsets --group a --topic orders:0:1 --to-earliest --dry-run",
            "Invalid topic arg 'orders:0:1', expected topic name and partitions",
        ),
        (
            "--reset-offsets --group a --topic orders --shift-by 1 --dry-run",
            "Cannot shift offset for partition orders-0 since there is no current committed offset",
        ),
        ("--delete-offsets --group a --topic orders:x", "Invalid partition 'x' specified in topic arg 'orders:x''"),
    ],
)
def test_an_argument_that_cannot_be_read_ends_with_the_usage(
    broker: Broker, words: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["consumer-groups", "--bootstrap-server", broker.bootstrap_servers, *words.split()])
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (1, "")
    assert err.startswith(f"{reason}\n{USAGE}")


@pytest.mark.slow
def test_a_partition_that_does_not_exist_is_a_failure_of_the_command(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--reset-offsets", "--group", "a", "--topic", "orders:7", "--to-earliest", "--dry-run"]
    assert main(["consumer-groups", "--bootstrap-server", broker.bootstrap_servers, *words]) == 0
    assert capsys.readouterr().out == (
        '\nError: Executing consumer group command failed due to The partitions "orders-7" do not exist\n'
    )
