"""spark-submit as on a cluster, with the wheel as --py-files and the packages on its command line."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from compat_tests.node import Node
from compat_tests.python.confluent_client import ConfluentClient
from compat_tests.spark.pipeline.copying import RAW
from compat_tests.topics import Topics
from testkit.clients import Record
from testkit.needs import ROOT, java

pytestmark = [pytest.mark.long(amount="one job"), pytest.mark.timeout(900)]


def submit(job: str, *options: str, wheel: Path, config: Path) -> subprocess.CompletedProcess[str]:
    import pyspark

    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", *options, "--py-files", str(wheel)]
    # The Python of the tests without the checkout, so that the job has only what it was submitted with.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [*command, str(ROOT / "spark" / "jobs" / job), "--config", str(config), "--once"],
        env={
            **clean,
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        },
        cwd=config.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_job_is_submitted_with_its_wheel(broker: Node, topics: Topics, tmp_path: Path) -> None:
    java()
    from pipeline.session import PACKAGES

    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(ROOT / "spark")]
    subprocess.run(pip, check=True, timeout=300)
    [wheel] = tmp_path.glob("*.whl")
    assert "pipeline/lake/ExclusiveLogStore.java" in zipfile.ZipFile(wheel).namelist(), "compiled in the driver"
    names = {name: topics.create(config=RAW) for name in ("clicks", "orders", "dead_letters", "metrics")}
    config = tmp_path / "pipeline.toml"
    config.write_text(
        f"""
checkpoints = "{tmp_path / "checkpoints"}"
[kafka]
bootstrap.servers = "{broker.bootstrap}"
[lake]
path = "{tmp_path / "lake"}"
[topics]
"""
        + "".join(f'{name} = "{topic}"\n' for name, topic in names.items())
    )
    ConfluentClient().produce(broker.bootstrap, names["orders"], [Record(b"k", b"v")])

    without = submit("dead_letters.py", wheel=wheel, config=config)
    assert (without.returncode, "Traceback" in without.stdout + without.stderr) == (2, False)
    assert f"spark-submit --packages {PACKAGES}" in without.stdout, "the Python of a submitted program has one output"

    ran = submit("dead_letters.py", "--packages", PACKAGES, wheel=wheel, config=config)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    [letter] = ConfluentClient().consume(broker.bootstrap, names["dead_letters"])
    assert (letter.key, letter.value, dict(letter.headers)["dlq.reason"]) == (b"k", b"v", b"no-schema-version")
