"""For a configuration with variables of config.providers, pykbroker shows what Apache Kafka shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compat_tests.node import Pykbroker
from testkit.nodes.wire import BROKER, Wire
from testkit.oracle import kafka
from testkit.oracle.kafka import ApacheKafka

PACKAGE = "org.apache.kafka.common.config.provider"


def texts(folder: Path) -> dict[str, str]:
    (folder / "some.properties").write_text("rack=r1\nstore=planted-secret\nspace=\\ a\\u0020\n")
    (folder / "bytes").write_text("2097152")
    (folder / "line").write_text("planted-secret\n")
    file = f"${{file:{folder}/some.properties"
    return {
        "config.providers": "env,file,dir",
        "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
        "config.providers.env.param.allowlist.pattern": "PROVIDED_.*",
        "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
        "config.providers.file.param.allowed.paths": str(folder),
        "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
        "num.partitions": "${env:PROVIDED_PARTITIONS}",
        "broker.rack": f"{file}:rack}}-{file}:gone}}-${{env:HOME}}-${{other:x}}-${{file:/etc/hostname:x}}",
        "metrics.context.x": f"{file}:space}}",
        "message.max.bytes": f"${{dir:{folder}:bytes}}",
        "ssl.truststore.certificates": f"${{dir:{folder}:line}}",
        "ssl.secure.random.implementation": f"{file}:store}}-${{dir:{folder}/gone:x}}-${{dir:x}}-${{file:x}}",
        "unknown.key": f"{file}:store}}",
    }


def test_describe_configs_shows_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROVIDED_PARTITIONS", "7")
    # The JVM that tests share may have begun before, without this variable.
    monkeypatch.setattr(kafka, "format_tool", kafka.run_tool)
    config = texts(tmp_path)
    shown: list[dict[str, Any]] = []
    for node in (ApacheKafka(config), Pykbroker(config)):
        try:
            with Wire(node.start().bootstrap) as wire:
                entries = wire.describe(BROKER, "1")
        finally:
            node.close()
        shown.append({name: (entries[name].value, entries[name].is_sensitive) for name in config})
    assert shown[0] == shown[1]
    assert shown[1]["num.partitions"] == ("7", False)
