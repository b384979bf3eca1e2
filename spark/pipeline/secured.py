"""The settings with which the pipeline's clients reach a secured cluster: `[security]` of pipeline.toml for each
client.

`settings` turns it into properties of the Java client, and the rest of the pipeline uses only these: Spark gets them
with `kafka.` before each (`Config.kafka_options`), kafka-python through `kafka_python`, librdkafka through
`librdkafka`. `[kafka]` may have such properties itself, for settings that `[security]` lacks; `check` judges those.

Invariants: an incomplete or unknown setting is a PipelineError and never a client with less protection. A secret value
is a `Secret`, which no repr and no message contains.
"""

from __future__ import annotations

import difflib
import os
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import PipelineError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LOGIN_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
MECHANISMS = tuple(_LOGIN_MODULES)
PASSWORDS = ("password", "password_env", "password_file")

#: The Java client's keys about security (Apache Kafka 3.9, which Spark's connector has). It ignores any other one.
KNOWN = frozenset(
    {
        *("security.protocol", "security.providers", "sasl.mechanism", "sasl.jaas.config"),
        "sasl.client.callback.handler.class",
        *(f"ssl.keystore.{key}" for key in ("type", "location", "password", "key", "certificate.chain")),
        *(f"ssl.truststore.{key}" for key in ("type", "location", "password", "certificates")),
        *(f"ssl.{key}" for key in ("protocol", "provider", "cipher.suites", "enabled.protocols", "key.password")),
        *(f"ssl.{key}.algorithm" for key in ("keymanager", "trustmanager", "endpoint.identification")),
        *("ssl.secure.random.implementation", "ssl.engine.factory.class"),
    }
)
#: Families of keys that belong to mechanisms of Java alone.
_KNOWN_FAMILIES = ("sasl.kerberos.", "sasl.login.", "sasl.oauthbearer.")
_ABOUT_SECURITY = ("security.", "sasl.", "ssl.")
#: Finds secrets in a text that quotes settings and may be cut off: the rest of a JAAS line, a private key, a password.
#: Python and Java read this expression alike. Java recurses for each repetition of a group, so long stretches are
#: repetitions of one character.
HIDDEN_TEXT = (
    r"""(?is)LoginModule\s[^;"']*(?:(?:"[^"\\]*(?:\\.[^"\\]*)*"?|'[^'\\]*(?:\\.[^'\\]*)*'?)[^;"']*)*"""
    r"""|PRIVATE KEY-----.*?(?:-----END|\Z)|password\s*(?:->|=)\s*"""
    r"""(?:"[^"\\]*(?:\\.[^"\\]*)*"?|'[^'\\]*(?:\\.[^'\\]*)*'?|[^\s;)\]"',]+(?:,[^\s;)\]"',]+)*)"""
)
_SECRET = re.compile(r"jaas|password|secret|token|keystore[.]key|access[.]?key", re.IGNORECASE)
_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""", re.DOTALL)
#: The escapes that java.io.StreamTokenizer knows between quotes.
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Secret(str):
    """A text that its repr hides, as Apache Kafka hides a Password."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "[hidden]"


@dataclass(frozen=True, slots=True)
class Security:
    """`[security]` as it is written; an empty text is a key that is missing."""

    protocol: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = field(default="", repr=False, metadata={"hidden": True})
    password_env: str = ""
    password_file: str = ""
    ca_file: str = ""


def hidden(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the same settings, with each secret among them as a `Secret`."""
    return {key: Secret(value) if _SECRET.search(key) else value for key, value in kafka.items()}


def scrubbed(text: str) -> str:
    """Return an outside text, which may quote settings, without its secrets."""
    return re.sub(HIDDEN_TEXT, "[hidden]", text)


# -- what is written, checked -----------------------------------------------------------------------------------------


def settings(security: Security, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return `[security]` as properties of the Java client. Reads the password and checks the certificates.

    Raises:
        PipelineError: something is missing, has no effect, or cannot be read.
    """
    protocol = security.protocol
    if not protocol:
        raise _wrong("protocol", "missing", f"one of {', '.join(PROTOCOLS)}")
    if protocol not in PROTOCOLS:
        raise _wrong("protocol", f"{protocol!r} is not one of {', '.join(PROTOCOLS)}")
    found = {"security.protocol": protocol}
    if protocol.startswith("SASL"):
        found |= _login(security, environment)
    else:
        _has_none(security, ("mechanism", "user", *PASSWORDS), f"{protocol} has no users; SASL_SSL has")
    if protocol.endswith("SSL"):
        found |= _trust(security)
    else:
        _has_none(security, ("ca_file",), f"{protocol} has no TLS; {protocol.replace('PLAINTEXT', 'SSL')} has")
    return found


def _login(security: Security, environment: Mapping[str, str]) -> dict[str, str]:
    for key in ("mechanism", "user"):
        if not getattr(security, key):
            raise _wrong(key, f"missing, and protocol is {security.protocol}")
    if security.mechanism not in MECHANISMS:
        raise _wrong("mechanism", f"{security.mechanism!r} is not one of {', '.join(MECHANISMS)}")
    password = _password(security, environment)
    for key, value in (("user", security.user), ("password", password)):
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            raise _wrong(key, "a line break or another control character is in it")
    module = _LOGIN_MODULES[security.mechanism]
    return {
        "sasl.mechanism": security.mechanism,
        "sasl.jaas.config": Secret(
            f"{module} required username={_quoted(security.user)} password={_quoted(password)};"
        ),
    }


def _password(security: Security, environment: Mapping[str, str]) -> str:
    given = [key for key in PASSWORDS if getattr(security, key)]
    if len(given) != 1:
        which = "missing" if not given else f"there is {' and '.join(given)}"
        raise _wrong("password", which, f"one of {', '.join(PASSWORDS)}")
    if security.password_env:
        found = environment.get(security.password_env, "")
        if not found:
            raise _wrong("password_env", f"the environment variable {security.password_env} is not set, or empty")
        return found
    if security.password_file:
        found = _text("password_file", security.password_file).removesuffix("\n").removesuffix("\r")
        if not found:
            raise _wrong("password_file", f"{security.password_file} is empty")
        return found
    return security.password


def _trust(security: Security) -> dict[str, str]:
    """Return the properties of the truststore. Without a ca_file each client trusts what its machine trusts."""
    if not security.ca_file:
        return {}
    text = _text("ca_file", security.ca_file)
    try:
        ssl.create_default_context().load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError):
        raise _wrong("ca_file", f"{security.ca_file} has no certificates in PEM") from None
    # Tasks do not run in the driver's folder.
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(Path(security.ca_file).absolute())}


def _text(key: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise _wrong(key, f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise _wrong(key, f"{path}: not UTF-8") from None


def _has_none(security: Security, keys: Iterable[str], why: str) -> None:
    for key in keys:
        if getattr(security, key):
            raise _wrong(key, why)


def _wrong(key: str, what: str, advice: str = "") -> PipelineError:
    return PipelineError(f"[security] {key}: {what}", advice)


def check(kafka: Mapping[str, str], *, has_table: bool) -> None:
    """Check the keys about security that are in `[kafka]` itself. `has_table`: there is `[security]` too.

    Raises:
        PipelineError: the Java client does not know a key, or would ignore it and connect without protection.
    """
    about = [key for key in kafka if key.startswith(_ABOUT_SECURITY)]
    for key in kafka:
        if key in KNOWN or key.startswith(_KNOWN_FAMILIES):
            continue
        close = difflib.get_close_matches(key, KNOWN, n=1, cutoff=0.85)
        if key in about or close:
            raise PipelineError(f"[kafka] {key}: unknown key" + (f"; did you mean {close[0]}?" if close else ""))
    if has_table and about:
        raise PipelineError(f"[kafka] {about[0]}: there is [security] too", "Say it in one of both tables.")
    protocol = kafka.get("security.protocol", "PLAINTEXT")
    if protocol not in PROTOCOLS:
        raise PipelineError(f"[kafka] security.protocol: {protocol!r} is not one of {', '.join(PROTOCOLS)}")
    for key in about:
        if (key.startswith("sasl.") and not protocol.startswith("SASL")) or (
            key.startswith("ssl.") and not protocol.endswith("SSL")
        ):
            raise PipelineError(f"[kafka] {key}: without effect, because security.protocol is {protocol}")


# -- the same for clients that are not Java ----------------------------------------------------------------------------


def user(kafka: Mapping[str, str]) -> str | None:
    """Return the user of the Java client's login; None if no JAAS line has one."""
    return _jaas(kafka).get("username")


def kafka_python(kafka: Mapping[str, str]) -> dict[str, object]:
    """Return properties of the Java client for kafka-python, only those that are needed to reach the cluster.

    Raises:
        PipelineError: kafka-python has no equivalent of a setting about security.
    """
    found: dict[str, object] = {"bootstrap_servers": [each.strip() for each in kafka["bootstrap.servers"].split(",")]}
    plain = ("security.protocol", "sasl.mechanism", "client.id")
    found |= {key.replace(".", "_"): kafka[key] for key in plain if key in kafka}
    login = _jaas(kafka)
    found |= {f"sasl_plain_{key}": login[key] for key in ("username", "password") if key in login}
    if kafka.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl_check_hostname"] = False
    for store, options in (("truststore", ["ssl_cafile"]), ("keystore", ["ssl_certfile", "ssl_keyfile"])):
        if _is_pem(kafka, store):
            found |= dict.fromkeys(options, kafka[f"ssl.{store}.location"])
    _refuse_what_is_not_said(kafka)
    return found


def librdkafka(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return properties of the Java client for librdkafka, only those that are needed to reach the cluster.

    Raises:
        PipelineError: librdkafka has no equivalent of a setting about security.
    """
    plain = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "client.id")
    found = {key: kafka[key] for key in plain if key in kafka}
    login = _jaas(kafka)
    found |= {f"sasl.{key}": login[key] for key in ("username", "password") if key in login}
    if kafka.get("ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    stores = {"truststore": ["ssl.ca.location"], "keystore": ["ssl.certificate.location", "ssl.key.location"]}
    for store, options in stores.items():
        if _is_pem(kafka, store):
            found |= dict.fromkeys(options, kafka[f"ssl.{store}.location"])
    _refuse_what_is_not_said(kafka)
    return found


def _refuse_what_is_not_said(kafka: Mapping[str, str]) -> None:
    if kafka.get("sasl.mechanism", "PLAIN") not in MECHANISMS:
        raise PipelineError(f"[kafka] sasl.mechanism: the driver's own client has {', '.join(MECHANISMS)}")
    known = {"security.protocol", "sasl.mechanism", "sasl.jaas.config", "ssl.endpoint.identification.algorithm"}
    for store in ("truststore", "keystore"):
        if _is_pem(kafka, store):
            known |= {f"ssl.{store}.type", f"ssl.{store}.location"}
    for key in kafka:
        if key.startswith(_ABOUT_SECURITY) and key not in known:
            raise PipelineError(
                f"[kafka] {key}: the driver's own client has no such setting",
                "stores as PEM files and sasl.jaas.config with username and password work",
            )


def _is_pem(kafka: Mapping[str, str], store: str) -> bool:
    return kafka.get(f"ssl.{store}.type") == "PEM" and f"ssl.{store}.location" in kafka


def _jaas(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the JAAS line; a password is a `Secret`."""
    found = {}
    for match in _JAAS_OPTION.finditer(kafka.get("sasl.jaas.config", "")):
        name, quoted, single, word = match.groups()
        text = word if word is not None else _unescaped(single if quoted is None else quoted)
        found[name] = Secret(text) if _SECRET.search(name) else text
    return found


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unescaped(text: str) -> str:
    def meant(match: re.Match[str]) -> str:
        octal, char = match.groups()
        return chr(int(octal, 8)) if octal else _ESCAPES.get(char, char)

    return re.sub(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", meant, text, flags=re.DOTALL)
