"""pykbroker.testing.PykbrokerContainer, with a Docker daemon."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from compat_tests.container.conftest import NewContainer
from compat_tests.container.containers import PATIENCE_S, docker, fresh_name
from compat_tests.container.host_clients import consume, produce, topics_at
from testkit.documented import examples

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("in_this_process")]


def new_one(image: str, used: ExitStack, *arguments: Any, **options: Any) -> Any:
    from pykbroker.testing import PykbrokerContainer

    container = PykbrokerContainer(image, *arguments, **options)
    used.callback(container.stop)
    return container


def test_records_through_it(tagged: str, used: ExitStack) -> None:
    kafka = new_one(tagged, used, {"num.partitions": 3, "pykbroker.create.topics": "made:2:1"})
    with pytest.raises(RuntimeError, match="not running"):
        _ = kafka.bootstrap_servers
    kafka.start(PATIENCE_S)
    with pytest.raises(RuntimeError, match="running already"):
        kafka.start()
    produce(kafka.bootstrap_servers, "orders", ["one", "two", "three"])
    assert sorted(consume(kafka.bootstrap_servers, "orders", 3)) == ["one", "three", "two"]
    assert topics_at(kafka.bootstrap_servers) == {"made": 2, "orders": 3}
    name = kafka.get_wrapped_container().name
    kafka.stop()
    kafka.stop()
    assert docker("inspect", name, check=False).returncode
    kafka.start(PATIENCE_S)
    assert topics_at(kafka.bootstrap_servers) == {"made": 2}


def test_the_documented_example(tagged: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The example of docs/testing.md, with the image under test."""
    (example,) = [one for one in examples() if one.needs == "docker"]
    made, ours = "PykbrokerContainer(config", f"PykbrokerContainer({tagged!r}, config"
    assert example.code.count(made) == 1
    exec(example.code.replace(made, ours), {})
    host, _, port = capsys.readouterr().out.strip().rpartition(":")
    assert host
    assert port.isdecimal()


@pytest.mark.parametrize("aliases", [[], ["kafka"]])
def test_containers_of_its_network_reach_it(
    aliases: list[str], tagged: str, network: str, used: ExitStack, new_container: NewContainer
) -> None:
    from testcontainers.core.network import Network

    there = Network()
    there.name = network
    kafka = new_one(tagged, used, network=there, network_aliases=aliases).start(PATIENCE_S)
    produce(kafka.bootstrap_servers, "orders", ["one"])
    if aliases:
        assert kafka.network_bootstrap_servers == "kafka:19092"
    reader = new_container(
        options=["--network", network],
        command=["kafka-console-consumer", "--bootstrap-server", kafka.network_bootstrap_servers,
                 "--topic", "orders", "--from-beginning", "--max-messages", "1"],
    )  # fmt: skip
    assert reader.wait_for_end() == 0, reader.log()
    assert "one" in reader.log().splitlines()


def test_what_keeps_it_from_starting(tagged: str, used: ExitStack) -> None:
    from docker.errors import DockerException
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    name = fresh_name()
    wrong = new_one(tagged, used, {"log.retention.ms": "a week"}, name=name)
    with pytest.raises(RuntimeError, match=r"the container ended before it served(.|\n)*Invalid value a week"):
        wrong.start(PATIENCE_S)
    assert docker("inspect", name, check=False).returncode
    silent = new_one(tagged, used, name=name).with_command(["sleep", "600"])
    with pytest.raises(TimeoutError, match="the container does not serve after 1 s; its log:"):
        silent.start(1)
    assert docker("inspect", name, check=False).returncode
    # The caller's own condition is waited for after ours.
    never = new_one(tagged, used, name=name).waiting_for(LogMessageWaitStrategy("never").with_startup_timeout(1))
    with pytest.raises(TimeoutError, match="never"):
        never.start(PATIENCE_S)
    assert docker("inspect", name, check=False).returncode
    # Its registry is a port of this machine that refuses, so nothing leaves the machine.
    with pytest.raises(DockerException, match="localhost:1"), new_one("localhost:1/pykbroker:none", used):
        pass
