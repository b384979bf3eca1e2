"""The place for data, chosen by the mounts of a container, and the line about data that no volume keeps."""

from __future__ import annotations

import pytest

from pykbroker.tools.container.mounts import (
    DEFAULT_PLACE,
    Mount,
    data_directories,
    lost_data_line,
    place_for_data,
    read_mounts,
)

ANONYMOUS = f"/var/lib/docker/volumes/{'0a' * 32}/_data"
ROOT = Mount("/", "/", "overlay", False)
OF_THE_IMAGE = (
    ROOT,
    Mount("/proc", "/", "proc", False),
    Mount("/dev", "/", "tmpfs", False),
    Mount("/etc/hosts", "/var/lib/docker/containers/0a/hosts", "ext4", False),
    Mount("/etc/kafka/secrets", ANONYMOUS, "ext4", False),
    Mount("/mnt/shared/config", ANONYMOUS, "ext4", False),
    Mount(DEFAULT_PLACE, ANONYMOUS, "ext4", False),
)


def named(point: str) -> Mount:
    return Mount(point, "/var/lib/docker/volumes/data/_data", "ext4", False)


def line(directory: str, *more: Mount, files: tuple[str, ...] = ()) -> str | None:
    mounts = (*OF_THE_IMAGE, *more)
    folders = {mount.point for mount in mounts} - {"/etc/hosts", *files}
    return lost_data_line([directory], mounts, folders)


@pytest.mark.parametrize(
    ("mounted", "place"),
    [
        (None, "/var/lib/kafka/data"),
        ("/var/lib/kafka/data", "/var/lib/kafka/data"),
        ("/tmp/kraft-combined-logs", "/tmp/kraft-combined-logs"),
        ("/tmp/kafka-logs", "/tmp/kafka-logs"),
        ("/bitnami/kafka/data", "/bitnami/kafka/data"),
        ("/bitnami/kafka", "/bitnami/kafka/data"),
        ("/bitnami", "/bitnami/kafka/data"),
        ("/kafka/data", "/kafka/data"),
        ("/kafka", "/kafka/data"),
        ("/bitnami/kafka/config", "/var/lib/kafka/data"),
    ],
)
def test_data_go_to_the_volume_of_each_image(mounted: str | None, place: str) -> None:
    assert place_for_data([*OF_THE_IMAGE, *([] if mounted is None else [named(mounted)])]) == place


def test_data_on_the_anonymous_volume_beside_a_named_one_are_named() -> None:
    assert line(DEFAULT_PLACE, named("/data")) == (
        "Data of this node end with the container: /var/lib/kafka/data is on an anonymous volume. None of them are in "
        "/data, which is mounted: mount the volume at /var/lib/kafka/data, or set KAFKA_LOG_DIRS to a directory in "
        "/data"
    )
    # The image's own volume covers a volume above it, as in Confluent's image.
    assert "on an anonymous volume. None of them are in /var/lib/kafka," in str(
        line(DEFAULT_PLACE, named("/var/lib/kafka"))
    )


@pytest.mark.parametrize(
    ("directory", "more", "fate"),
    [
        ("/tmp/kraft-combined-logs", named(DEFAULT_PLACE), "in the container's own layer"),
        ("/tmp/x/data", named("/data"), "in the container's own layer"),
        ("/dev/shm/data", named("/data"), "in memory"),
    ],
)
def test_data_that_no_volume_keeps_are_named_beside_one_that_would(directory: str, more: Mount, fate: str) -> None:
    assert f"{directory} is {fate}. None of them are in {more.point}," in str(line(directory, more))


@pytest.mark.parametrize(
    "more",
    [
        named("/docker-entrypoint-initdb.d"),
        named("/etc/certificates"),
        named("/bitnami/kafka/config"),
        named("/usr/share/scripts"),
        Mount("/certificates", "/home/me/certificates", "ext4", True),
        Mount("/cache", "/", "tmpfs", False),
        Mount("/other", ANONYMOUS, "ext4", False),
    ],
    ids=lambda mount: mount.point,
)
def test_what_is_mounted_for_other_reasons_is_not_named(more: Mount) -> None:
    assert line(DEFAULT_PLACE, more) is None


def test_a_mounted_file_keeps_no_data() -> None:
    assert line(DEFAULT_PLACE, named("/scripts/start.sh"), files=("/scripts/start.sh",)) is None


@pytest.mark.parametrize("directory", ["/data/broker", "/data"])
def test_data_on_a_named_volume_need_no_line(directory: str) -> None:
    assert line(directory, named("/data"), named("/backup")) is None
    assert line("/database", named("/data")) is not None


def test_a_volume_that_covers_another_counts() -> None:
    assert line(DEFAULT_PLACE, named(DEFAULT_PLACE), named("/backup")) is None


def test_mountinfo_is_read_as_the_kernel_writes_it() -> None:
    text = (
        "78 54 0:39 / / rw,relatime master:2 - overlay overlay rw,lowerdir=/a,upperdir=/b\n"
        f"99 78 254:0 {ANONYMOUS} /etc/kafka/secrets rw,relatime master:1 - ext4 /dev/vda rw,discard\n"
        "95 78 254:0 /home/my\\040data /my\\134data\\040here ro,relatime - ext4 /dev/vda rw\n"
        "not a line\n"
    )
    assert read_mounts(text) == (
        ROOT,
        Mount("/etc/kafka/secrets", ANONYMOUS, "ext4", False),
        Mount("/my\\data here", "/home/my data", "ext4", True),
    )
    assert read_mounts("") == ()


def test_each_place_that_the_properties_name_is_looked_at() -> None:
    assert data_directories({"log.dirs": "/a, /b", "log.dir": "/c", "metadata.log.dir": "/m"}) == ["/a", "/b", "/m"]
    assert data_directories({"log.dirs": " ", "log.dir": "/c"}) == ["/c"]
    assert data_directories({}) == []
