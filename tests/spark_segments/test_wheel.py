"""The wheel of the data source reads without pykbroker: from a folder and an archive, compiled and in Python."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pykbroker_log.partition_log import PartitionLog
from pykbroker_wire.records import walk
from pykbroker_wire.records.batch import build_batch
from testkit.logs.data_directory import DataDirectory
from testkit.logs.helpers import NOW

ROOT = Path(__file__).parents[2]
SHARED_OBJECT = "pyspark_pykbroker/_parts/pykbroker_wire/records/_walk.abi3.so"

#: Runs with -S: without the checkout that is installed in the environment of the tests.
READ = """
import importlib.util, json, sys
sys.path += [sys.argv[1], sys.argv[3]]
from pyspark_pykbroker import DefaultSource
from pyspark_pykbroker._parts.pykbroker_wire.records import columns
source = DefaultSource({"path": sys.argv[2], "subscribe": "t"})
reader = source.reader(source.schema())
rows = [row for piece in reader.partitions() for batch in reader.read(piece) for row in batch.to_pylist()]
own = [name for name in sys.modules if name.partition(".")[0] in ("pykbroker", "pykbroker_wire", "pykbroker_log")]
found = [name for name in ("pykbroker", "pykbroker_wire", "pykbroker_log") if importlib.util.find_spec(name)]
values = [[row["offset"], row["value"].decode()] for row in rows]
print(json.dumps({"compiled": columns.COMPILED, "own": own, "found": found, "values": values}))
"""


def build_hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("build_hook", ROOT / "spark/segments/build_hook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    problem = build_hook().write(folder)
    assert (problem is None) == (folder / SHARED_OBJECT).exists()
    assert problem is None or not walk.COMPILED, problem
    return folder


def zipped(contents: Path, target: Path, *, without: str = "") -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for path in sorted(contents.rglob("*")):
            name = path.relative_to(contents).as_posix()
            if path.is_file() and name != without and "__pycache__" not in name:
                archive.write(path, name)
    return target


def fill(log: PartitionLog, codec: int = 0) -> None:
    records = [(b"k", b"value %d" % n, (), NOW) for n in range(3)]
    log.append_as_leader(bytearray(build_batch(records, codec=codec)), leader_epoch=0, now_ms=NOW)
    log.set_high_watermark(log.log_end_offset)


def read(package: Path, data: Path, **environment: str) -> dict[str, Any]:
    command = [sys.executable, "-S", "-B", "-c", READ, str(package), str(data), sysconfig.get_path("purelib")]
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYKBROKER_PURE")}
    ran = subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=120, cwd=data)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    assert found["own"] == found["found"] == [], "nothing of pykbroker itself is there or loaded"
    return found


@pytest.mark.slow
def test_the_wheel_reads_without_pykbroker(contents: Path, tmp_path: Path) -> None:
    made = DataDirectory(tmp_path / "data")
    log = made.log()
    for codec in range(5):
        fill(log, codec)
    made.checkpoint()
    wanted = [[row["offset"], row["value"].decode()] for row in made.rows(["offset", "value"])]
    assert len(wanted) == 15
    compiled = (contents / SHARED_OBJECT).exists()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    archive = zipped(contents, tmp_path / "source.whl")
    pure = zipped(contents, tmp_path / "pure.whl", without=SHARED_OBJECT)
    for package, environment, is_compiled in (
        (contents, {}, compiled),
        (contents, {"PYKBROKER_PURE": "1"}, False),
        (archive, {"TMPDIR": str(temporary)}, compiled),
        (pure, {}, False),
    ):
        found = read(package, made.path, **environment)
        assert found["values"] == wanted
        assert found["compiled"] == is_compiled, package
    assert not list(temporary.iterdir()), "what was copied out of the archive is gone"


def test_an_import_that_cannot_be_renamed_stops_the_build(tmp_path: Path) -> None:
    hook = build_hook()
    path = tmp_path / "module.py"
    path.write_text("def f():\n    from pykbroker_wire.records import walk\n    return walk\n")
    assert "    from pyspark_pykbroker._parts.pykbroker_wire.records import walk" in hook.renamed(path)
    for wrong in ("import pykbroker_wire.records", "from pykbroker_wire import (\n  a,\n); import pykbroker_log"):
        path.write_text(wrong)
        with pytest.raises(ValueError, match="cannot be changed"):
            hook.renamed(path)


@pytest.mark.long(amount="one wheel, by pip, into an environment of its own")
def test_pip_builds_and_installs_the_wheel(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    subprocess.run([*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT / "spark/segments")], check=True)
    [wheel] = tmp_path.glob("pyspark_pykbroker-*.whl")
    target = tmp_path / "installed"
    subprocess.run([*pip, "install", "-q", "--no-deps", "--target", str(target), str(wheel)], check=True)
    made = DataDirectory(tmp_path / "data")
    fill(made.log())
    made.checkpoint()
    assert (target / SHARED_OBJECT).exists() == walk.COMPILED == ("none-any" not in wheel.name)
    found = read(target, made.path)
    assert [offset for offset, _ in found["values"]] == [0, 1, 2]
    assert found["compiled"] == walk.COMPILED
