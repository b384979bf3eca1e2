"""Volumes with a real container engine: data are in the mounted one, or a line warns that they are not."""

from __future__ import annotations

import pytest

from compat_tests.container.conftest import NewContainer
from compat_tests.container.containers import SERVES, docker

#: The engine may have to make a base image first.
pytestmark = pytest.mark.timeout(900)

END_WITH_THE_CONTAINER = "Data of this node end with the container"


@pytest.mark.parametrize("point", ["/bitnami/kafka", "/tmp/kraft-combined-logs"])
def test_a_volume_where_another_image_has_its_data_keeps_them(
    new_container: NewContainer, volume: str, point: str
) -> None:
    """Bitnami's and Apache Kafka's; the volume is new, so the engine gives it the owner of the image's directory."""
    mounted = ["-v", f"{volume}:{point}"]
    first = new_container({"CLUSTER_ID": "first"}, options=mounted)
    assert END_WITH_THE_CONTAINER not in first.wait_for(SERVES)
    docker("rm", "-fv", first.name)
    again = new_container({"CLUSTER_ID": "first"}, options=mounted)
    log = again.wait_for(SERVES)
    assert "Formatted" not in log
    assert END_WITH_THE_CONTAINER not in log


def test_a_volume_without_the_data_is_named(new_container: NewContainer, volume: str) -> None:
    node = new_container(options=["-v", f"{volume}:/data"])
    log = node.wait_for(SERVES)
    assert log.count(END_WITH_THE_CONTAINER) == 1
    assert "/var/lib/kafka/data is on an anonymous volume. None of them are in /data, which is mounted" in log
