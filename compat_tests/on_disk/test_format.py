"""`pykbroker format` and `kafka-storage format` leave the same files, and the first start writes the same records.

Both get the same arguments and the same server.properties. Values that must differ are replaced: the ids of directories
that the tool generates, and the time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.on_disk.formatting import (
    BOTH,
    CLUSTER_ID,
    RUN,
    STATIC,
    Case,
    Ended,
    Place,
    case,
    described,
    files_of,
    formatted,
    properties_of,
    records_of,
)
from compat_tests.on_disk.home import Home, Owner
from compat_tests.tool_server import run_shared
from pykbroker_log.checkpoints import decode_uuid
from testkit import needs
from testkit.oracle.kafka import kafka_libs

VOTERS = "1@localhost:19093:JEXY6aqzQY-32P5TStzaFg,2@[::1]:1234:MvDxzVmcRsaTz33bUuRU6A"
ELR = "eligible.leader.replicas.version"
RELEASES = ("3.3-IV3", "3.5-IV2", "3.6-IV0", "3.7", "3.9-IV0", "4.0-IV0", "4.0-IV3", "4.1", "4.2-IV0", "4.2", "4.3-IV0")
BROKER_ONLY = case("", process__roles="broker", listeners="PLAINTEXT://localhost:19092").config
FORMATS = [
    case(),
    *(case(f"--standalone --release-version {release}") for release in RELEASES),
    case("--standalone --feature metadata.version=26"),
    case("--standalone --feature kraft.version=1"),
    case("--standalone --feature group.version=0 --feature transaction.version=0"),
    case("-s -r 3.9 -f transaction.version=2 -f group.version=1 -f share.version=1 -f streams.version=1"),
    case(f"--standalone --feature {ELR}=0"),
    case(f"--standalone --release-version 4.0-IV1 --feature {ELR}=1"),
    case("--standalone --feature share.version=0 --feature streams.version=0"),
    case(
        "--standalone",
        listeners="PLAINTEXT://localhost:19092,CONTROLLER://localhost:19093,OTHER://localhost:19094",
        controller__listener__names="OTHER,CONTROLLER",
        listener__security__protocol__map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OTHER:PLAINTEXT",
    ),
    case('--standalone --add-scram SCRAM-SHA-512=[name=admin,iterations=8192,salt="N3E=",saltedpassword="YCE="]'),
    case('-s -S SCRAM-SHA-256=[name=a,salt=N3E,password=b,] -S SCRAM-SHA-256=[password=c=d,salt=N3E=,name="e"]'),
    case("-s --release-version 3.5-IV2 --add-scram SCRAM-SHA-256=[name=a,salt=N3E=,password=b,iterations=16384]"),
    case(f"--initial-controllers {VOTERS}"),
    case("--initial-controllers 7@other:1234:MvDxzVmcRsaTz33bUuRU6A"),
    case("--no-initial-controllers"),
    Case("", STATIC),
    Case("--no-initial-controllers --feature kraft.version=0", STATIC),
    Case("", BROKER_ONLY),
    Case(f"-I {VOTERS}", BROKER_ONLY),
]
REFUSED = [
    case("--standalone --release-version 3.2"),
    case("--standalone --release-version 4.5-IV0"),
    case("--standalone --release-version 4.3 --feature metadata.version=30"),
    case("--standalone --feature metadata.version=34"),
    case("--standalone --feature kraft.version=0"),
    case("--standalone --feature kraft.version=2"),
    Case("--feature kraft.version=1", STATIC),
    Case("--standalone", STATIC),
    Case(f"--initial-controllers {VOTERS}", STATIC),
    case("--standalone --no-initial-controllers"),
    case(f"--standalone --initial-controllers {VOTERS}"),
    Case("--standalone", BROKER_ONLY),
    case(f"--standalone --release-version 4.0-IV0 --feature {ELR}=1"),
    case(f"--standalone --feature {ELR}=2"),
    case("--standalone --feature no.such.feature=1"),
    case("--standalone --feature group.version"),
    case("--standalone --feature group.version=x"),
    case("-s --release-version 3.5-IV1 --add-scram SCRAM-SHA-256=[name=a,password=b]"),
    *(
        case(f"--standalone --add-scram {credential}")
        for credential in (
            "SCRAM-SHA-1=[name=a,password=b]",
            "SCRAM-SHA-256=name=a,password=b]",
            "SCRAM-SHA-256=[name=a,password=b",
            "SCRAM-SHA-256=[password=b]",
            "SCRAM-SHA-256=[name=a]",
            "SCRAM-SHA-256=[name=a,saltedpassword=YCE=]",
            "SCRAM-SHA-256=[name=a,password=b,salt=!]",
            "SCRAM-SHA-256=[name=a,password=b,iterations=4095]",
            "SCRAM-SHA-256=[name=a,password=b,iterations=16385]",
            "SCRAM-SHA-512=[name=a,password=b,iterations=x]",
            "SCRAM-SHA-256=[name=a,password=b,zz=c,more=d]",
        )
    ),
    *(
        case(f"--initial-controllers {voters}")
        for voters in (
            ",",
            "1",
            "@localhost:1:MvDxzVmcRsaTz33bUuRU6A",
            "x@localhost:1:MvDxzVmcRsaTz33bUuRU6A",
            "1@",
            "1@[::1:1:MvDxzVmcRsaTz33bUuRU6A",
            "1@[::1]1:MvDxzVmcRsaTz33bUuRU6A",
            "1@localhost",
            "1@localhost:1",
            "1@localhost:x:MvDxzVmcRsaTz33bUuRU6A",
            "1@localhost:65536:MvDxzVmcRsaTz33bUuRU6A",
            "1@localhost:1:short",
            "1@localhost:1:MvDxzVmcRsaTz33bUuRU6A,1@localhost:2:JEXY6aqzQY-32P5TStzaFg",
        )
    ),
]
CASES = [*FORMATS, *REFUSED]
Outcomes = dict[Owner, list[tuple[Place, Ended]]]


@pytest.fixture(autouse=True)
def _judge() -> None:
    needs.java()
    kafka_libs()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Every case, by both. Apache Kafka's tool runs in one JVM for all of them."""
    needs.java()
    kafka_libs()
    return {owner: formatted(tmp_path_factory.mktemp("format") / owner, owner, CASES) for owner in BOTH}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FORMATS)), ids=lambda number: str(FORMATS[number]))
def test_a_directory_has_the_records_that_apache_kafka_formats(number: int, outcomes: Outcomes) -> None:
    for owner in BOTH:
        place, ended = outcomes[owner][number]
        assert ended.status == 0, f"{owner}: {ended.said}"
        if FORMATS[number].words.startswith("--initial-controllers 1@"):
            assert properties_of(place.folders[1])["directory.id"] == "JEXY6aqzQY-32P5TStzaFg"
    theirs, ours = ([described(folder) for folder in outcomes[owner][number][0].folders] for owner in BOTH)
    assert ours == theirs


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FORMATS), len(CASES)), ids=lambda number: str(CASES[number]))
def test_what_apache_kafka_does_not_format_is_not_formatted(number: int, outcomes: Outcomes) -> None:
    for owner in BOTH:
        place, ended = outcomes[owner][number]
        assert ended.status != 0, f"{owner}: {ended.said}"
        assert not any(folder.exists() for folder in place.folders)
    assert "Traceback" not in outcomes["pykbroker"][number][1].said


@pytest.mark.slow
@pytest.mark.parametrize("owner", BOTH)
def test_ignore_formatted(owner: Owner, tmp_path: Path) -> None:
    """Formatted directories stay as they are, and without the option nothing is formatted if one already is."""
    run: Callable[..., list[Ended]] = RUN[owner]
    place = Place(tmp_path / "place", {})
    first, second = place.folders
    line = place.line("--standalone")
    assert run([line])[0].status == 0
    kept = (second / "meta.properties").read_bytes()
    for path in first.iterdir():
        path.unlink()
    refused, done, again = run([line, [*line, "--ignore-formatted"], [*line, "-g"]])
    assert refused.status == 1
    assert "is already formatted. Use --ignore-formatted" in refused.said
    assert done.status == 0
    assert files_of(first) == ["bootstrap.checkpoint", "meta.properties"]
    assert again.status == 0
    assert "All of the log directories are already formatted." in again.said
    assert (second / "meta.properties").read_bytes() == kept
    stranger = (first / "meta.properties").read_text().replace(CLUSTER_ID, "AAAAAAAAAAAAAAAAAAAAAw")
    (first / "meta.properties").write_text(stranger)
    assert run([[*line, "--ignore-formatted"]])[0].status != 0


# The first start.

ACTIVATED = [
    case(min__insync__replicas="2"),
    case("--standalone -r 3.3-IV3"),
    case(f"--standalone -r 4.0-IV3 --feature {ELR}=1 --feature group.version=0"),
    Case("", STATIC),
]
ALSO_ACTIVATED = [
    *(case(f"--standalone -r {release}") for release in ("3.6-IV0", "3.9-IV0", "4.0-IV3", "4.1", "4.2-IV0")),
    case(f"--standalone --feature {ELR}=0 --feature transaction.version=0"),
    case("--standalone --feature share.version=0 --feature streams.version=0"),
]
#: The other broker continues in these cases alone, because each is a further start of a JVM.
CONTINUED = (*ACTIVATED[::3], *ALSO_ACTIVATED)
REGISTRATIONS = ("RegisterBrokerRecord", "RegisterControllerRecord", "BrokerRegistrationChangeRecord", "NoOpRecord")


def activation_of(folder: Path) -> list[tuple[str, str]]:
    """Return the records of the metadata log before the first broker or controller registers."""
    directory_id = decode_uuid(properties_of(folder)["directory.id"])
    found: list[tuple[str, str]] = []
    for said, value in records_of((folder / "__cluster_metadata-0" / f"{0:020d}.log").read_bytes(), directory_id):
        if said.startswith(REGISTRATIONS):
            break
        found.append((said, value))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [*ACTIVATED, *(pytest.param(case, marks=pytest.mark.long(amount="one release")) for case in ALSO_ACTIVATED)],
    ids=str,
)
def test_the_first_activation_writes_what_apache_kafka_writes(case: Case) -> None:
    """Whichever of the two has formatted the directory; and each continues what the other has begun (`CONTINUED`)."""
    found: dict[str, list[tuple[str, str]]] = {}
    with Home() as home:
        config = {key: value.replace("19093", str(home.port + 1)) for key, value in case.config}
        starts: Owner
        for by, starts in (("kafka", "pykbroker"), ("pykbroker", "pykbroker"), ("kafka", "kafka")):
            name = f"formatted by {by}, started by {starts}"
            folder = home.path / f"{by}-{starts}"
            home.configure({"log.dirs": str(folder), **config})
            line = ["format", "--cluster-id", CLUSTER_ID, "--config", str(home.properties), *case.words.split()]
            if by == "kafka":
                run_shared("kafka.tools.StorageTool", line)
            else:
                ended = RUN[by]([line])[0]
                assert ended.status == 0, ended.said
            home.start(starts)
            home.stop()
            found[name] = activation_of(folder)
            if by == "pykbroker" and case in CONTINUED:
                home.start("kafka")
                home.stop()
        if case in CONTINUED:
            home.start("pykbroker")
            home.stop()
    first, *others = found.values()
    assert any(said.startswith("FeatureLevelRecord(name='metadata.version'") for said, _ in first)
    assert all(other == first for other in others), found
