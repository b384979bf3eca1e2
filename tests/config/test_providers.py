"""config.providers: the values that a start finds in the environment, in files and in directories, and its errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pykbroker.config.describe import describe_broker
from pykbroker.config.dynamic import DynamicConfigs
from pykbroker.config.kinds import ConfigError
from pykbroker.config.load import development_profile, with_overrides
from pykbroker.config.provider_names import VARIABLE
from pykbroker.config.providers import Sources, resolved
from pykbroker.config.start_up import start_config, start_texts
from pykbroker.runtime.secret_files import exists, read_regular
from testkit.acting import acts
from testkit.nodes.processes import run, write_properties

PACKAGE = "org.apache.kafka.common.config.provider"
ENV = {"config.providers": "env", "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider"}
FILE = {"config.providers": "file", "config.providers.file.class": f"{PACKAGE}.FileConfigProvider"}
FOLDER = {"config.providers": "dir", "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider"}
SECRET = "planted-secret"


def values(texts: Mapping[str, str], environment: Mapping[str, str] | None = None) -> dict[str, str]:
    found = resolved(texts, Sources(environment or {}, read_regular, exists))
    return {key: text for key, text in found.items() if not key.startswith("config.providers")}


def test_a_variable_of_the_environment() -> None:
    texts = {**ENV, "broker.rack": "a-${env:RACK}-${env:ZONE}", "other": "${env:RACK"}
    assert values(texts, {"RACK": "r1", "ZONE": "${env:RACK}"}) == {
        "broker.rack": "a-r1-${env:RACK}",
        "other": "${env:RACK",
    }


def test_the_allowlist_matches_whole_names() -> None:
    texts = {**ENV, "config.providers.env.param.allowlist.pattern": "KAFKA_.*", "a": "${env:KAFKA_A} ${env:MY_KAFKA_A}"}
    assert values(texts, {"KAFKA_A": "1", "MY_KAFKA_A": "2"})["a"] == "1 ${env:MY_KAFKA_A}"


def test_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "some.properties").write_text("store\\ password = two\\u0020words \nother=é\n", encoding="utf-8")
    (tmp_path / "password").write_text("line\n")
    (tmp_path / "folder").mkdir()
    file = f"${{file:{tmp_path}/some.properties:"
    texts = {**FILE, "a": file + "store password}", "b": file + "other}", "c": file + "gone}", "d": "${file:other}"}
    assert values(texts) == {"a": "two words ", "b": "é", "c": file + "gone}", "d": "${file:other}"}
    names = ("password", "folder", "gone", "../password", ".")
    texts = {**FOLDER, **{name: f"${{dir:{tmp_path}:{name}}}" for name in names}}
    assert values(texts) == {**{name: texts[name] for name in names}, "password": "line\n"}


def test_allowed_paths(tmp_path: Path) -> None:
    for name in ("in", "inside"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f.properties").write_text("k=v\n")
    for provider, kind, key in ((FILE, "file", "f.properties:k"), (FOLDER, "dir", ":f.properties")):
        paths = {f"config.providers.{kind}.param.allowed.paths": str(tmp_path / "in")}
        texts = {
            name: f"${{{kind}:{tmp_path}/{folder}/{key}}}".replace("/:", ":")
            for name, folder in (("good", "in"), ("bad", "inside"), ("sly", "in/../inside"), ("odd", "inside/../in"))
        }
        found = values({**provider, **paths, **texts})
        assert found["good"] == found["odd"] != texts["good"]
        assert (found["bad"], found["sly"]) == (texts["bad"], texts["sly"])


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({**ENV, "ssl.key.password": "${env:GONE}"}, "ssl.key.password: the provider env has no value for"),
        ({**ENV, "listener.name.x.plain.sasl.jaas.config": "${env:GONE}"}, "the provider env has no value for"),
        ({**ENV, "a": "${env:/some/path:KEY}"}, "Path is not supported for EnvVarConfigProvider"),
        ({**ENV, "config.providers.env.param.allowlist.pattern": "("}, "allowlist.pattern"),
        ({**FILE, "a": "${file:/nowhere/at/all:key}"}, "Could not read properties from file /nowhere/at/all"),
        ({**FILE, "a": "${file:/:key}"}, "Could not read properties from file /"),
        ({**FILE, "config.providers.file.param.allowed.paths": "here"}, "Path here is not absolute"),
        ({**FOLDER, "config.providers.dir.param.allowed.paths": "/nowhere/at/all"}, "does not exist"),
        ({**FOLDER, "ssl.key.password": "${dir:/nowhere/at/all:key}"}, "the provider dir has no value for"),
        ({"config.providers": "vault", "config.providers.vault.class": "a.B"}, "of other classes: vault"),
        ({"config.providers": "vault", "ssl.key.password": "${vault:x}"}, "of other classes: vault"),
    ],
)
def test_what_stops_the_start(texts: dict[str, str], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        start_config({**development_profile(str(tmp_path)), **texts})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_none_says_nothing_of_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"key=\xff" + SECRET.encode())
    (tmp_path / "escape").write_text(f"key={SECRET}\\u12\n")
    for name in ("latin", "escape"):
        with pytest.raises(ConfigError) as refused:
            values({**FILE, "ssl.key.password": f"${{file:{tmp_path / name}:key}}"})
        assert SECRET not in str(refused.value)
        assert refused.value.__cause__ is None


def test_without_providers_a_text_is_what_it_is(tmp_path: Path) -> None:
    """A password may contain any character."""
    config = start_config({**development_profile(str(tmp_path)), "ssl.key.password": "${env:X}"})
    assert config["ssl.key.password"] == "${env:X}"
    assert not config.warnings


@given(st.text(alphabet="${}:ab", max_size=20), st.text(alphabet="${}:ab", max_size=5))
def test_each_variable_is_replaced_once_and_nothing_else(text: str, value: str) -> None:
    asked = {match[4] for match in VARIABLE.finditer(text) if match[1] == "a" and not match[3]}
    texts = {"config.providers": "a", "config.providers.a.class": ENV["config.providers.env.class"], "k": text}
    if any(match[1] == "a" and match[3] for match in VARIABLE.finditer(text)):
        with pytest.raises(ConfigError, match="Path is not supported"):
            values(texts)
        return
    found = values(texts, dict.fromkeys(asked, value))["k"]
    expected, end = "", 0
    for match in VARIABLE.finditer(text):
        expected += text[end : match.start()] + (value if match[1] == "a" and not match[3] else match[0])
        end = match.end()
    assert found == expected + text[end:]


def test_what_is_left_over_is_named(tmp_path: Path) -> None:
    config = start_config({**development_profile(str(tmp_path)), **ENV, "broker.rack": "${env:PYKBROKER_GONE}"})
    (warning,) = config.warnings
    assert "broker.rack" in warning
    assert "${env:PYKBROKER_GONE}" in warning


def test_a_part_of_a_password_is_not_named(tmp_path: Path) -> None:
    """A text that looks like a variable may be the password itself, or the middle of it."""
    with pytest.raises(ConfigError) as refused:
        values({**ENV, "ssl.key.password": f"Tr0ub${{env:{SECRET}}}4dor"})
    assert str(refused.value) == "ssl.key.password: the provider env has no value for a variable in it"
    config = start_config({**development_profile(str(tmp_path)), **ENV, "own.password": f"Tr0ub${{env:{SECRET}}}4dor"})
    assert SECRET not in "".join(config.warnings)
    assert any("own.password: no provider has a value for a variable in it" in line for line in config.warnings)


@acts(broker=("config.providers",))
def test_values_of_providers_are_secrets_by_their_key(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text(f"plain=7\npassword={SECRET}\n")
    config = start_config(
        {
            **development_profile(str(tmp_path)),
            **FILE,
            "num.partitions": f"${{file:{tmp_path}/secrets:plain}}",
            "ssl.key.password": f"${{file:{tmp_path}/secrets:password}}",
            "unknown.key": f"${{file:{tmp_path}/secrets:password}}",
        }
    )
    assert (config.int("num.partitions"), config["ssl.key.password"]) == (7, SECRET)
    entries = {entry.name: entry for entry in describe_broker(config, DynamicConfigs())}
    assert entries["num.partitions"].value == "7"
    for name in ("ssl.key.password", "unknown.key", "config.providers.file.class"):
        assert entries[name].value is None
        assert entries[name].is_sensitive
    assert SECRET not in json.dumps([repr(entry) for entry in entries.values()]) + repr(config) + str(config.warnings)


def test_a_dynamic_text_is_not_resolved(tmp_path: Path) -> None:
    config = start_config({**development_profile(str(tmp_path)), **ENV})
    assert with_overrides(config, {"broker.rack": "${env:PATH}"})["broker.rack"] == "${env:PATH}"


@pytest.mark.slow
def test_the_command_line_asks_providers(tmp_path: Path) -> None:
    (tmp_path / "log.dirs").write_text(str(tmp_path / "data"))
    texts = {**development_profile("${dir:" + str(tmp_path) + ":log.dirs}", 0), **FOLDER}
    file = write_properties(tmp_path / "server.properties", texts)
    done = run("format", str(file), "--standalone")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "data" / "meta.properties").exists()
    file = write_properties(file, {**texts, "ssl.key.password": "${dir:/nowhere:x}"})
    done = run("start", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith("pykbroker: ssl.key.password: the provider dir has no value for ${dir:/nowhere:x}")


def test_texts_of_a_start_keep_their_order() -> None:
    assert list(start_texts({"node.id": "1", **ENV})) == ["node.id", *ENV]
