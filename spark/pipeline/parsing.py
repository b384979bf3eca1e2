"""Raw records -> the normal form, or the reason why not. No record is dropped and no bytes raise an error.

A row is decoded to its end with the writer schema that its header names. Bytes after a whole value (a second object, a
field of a later version) make it `malformed` and are never ignored. The first reason that applies is the verdict:

    no-schema-version       there is no header schema-version
    unknown-schema-version  the topic has no such version
    wrong-content-type      the header content-type, if there is one, differs from that of the topic
    malformed               no value, an empty one, not UTF-8, no JSON object, no Avro record of that schema
    missing-field NAME      the field is not there, or null; NAME as the raw record spells it
    bad-value NAME          the wrong type, or a value that cannot be (`schemas.FIELDS`)
    from-the-future         it happened later than it was written to Kafka, by more than max_skew_s
    too-late                it was written to Kafka more than allowed_lateness_s after it happened

The last two use the Kafka record's own timestamp and not a clock or a watermark, so every run agrees. A record that was
sent again (`transforms.redriven`) is judged by its first timestamp. A good event that a job still drops by its
watermark is `behind-watermark` (`transforms.behind`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.config import Config
from pipeline.schemas import (
    AVRO,
    CLICKS,
    CONTENT_TYPE,
    FIELDS,
    JSON,
    ORDERS,
    ORDERS_AVRO,
    REDRIVE_TIMESTAMP,
    SCHEMA_VERSION,
    Field,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def parse(raw: DataFrame, config: Config) -> DataFrame:
    """Add the columns of `schemas.EVENT` and `problem` struct<code, message>, null for a valid row, to the raw ones.

    In an invalid row the columns of the event hold the values that could be read.
    """
    from pyspark.sql import functions as F

    is_click = F.col("topic") == config.topics.clicks
    text = F.col("value").cast("string")
    versioned = raw.withColumns({"version": header(SCHEMA_VERSION), "content_type": header(CONTENT_TYPE)})
    known = versioned.withColumn("required", _required(is_click))
    read = _computed(known, {**_json(is_click, text), **_avro(is_click)})
    decoded = _computed(read, {"click": _whole_json(), "order": _whole_avro()})
    typed = _computed(decoded, {"fields": _fields(), "present": _present()})
    checked = _computed(typed, {"missing": _missing(), "bad": _bad()})
    judged = _computed(checked, {"problem": _problem(config, is_click, text)})
    return judged.select(*raw.columns, "problem", *[value.alias(name) for name, value in _event().items()])


def first_written_ms() -> Column:
    """Return when the record was written to Kafka for the first time. No header makes that later than the record
    itself; otherwise a client could write events of the future, which move watermarks."""
    from pyspark.sql import functions as F

    return F.least(header(REDRIVE_TIMESTAMP).try_cast("bigint"), F.unix_millis("timestamp"))


def _computed(frame: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Return the frame with these columns, computed once for each row.

    A plain column is only a name for an expression: Spark's optimizer repeats the expression wherever the name is used,
    also in filters. By the fourth step a plan takes minutes to make and decodes a record a hundred times. The optimizer
    does not do that through a generator.
    """
    from pyspark.sql import functions as F

    row = F.struct(*[value.alias(name) for name, value in columns.items()])
    return frame.select("*", F.inline(F.array(row)))


def header(name: str, headers: str = "headers") -> Column:
    """Return the last header of that name as text, null if there is none or it has no value."""
    from pyspark.sql import functions as F

    named = F.filter(headers, lambda each: each["key"] == name)
    return F.make_valid_utf8(F.try_element_at(named, F.lit(-1))["value"].cast("string"))


def _required(is_click: Column) -> Column:
    """Return the names of the fields that the row's version has, null if there is no such version."""
    from pyspark.sql import functions as F

    def of(versions: dict[str, tuple[str, ...]]) -> Column:
        cases = [F.when(F.col("version") == key, F.array(*map(F.lit, names))) for key, names in versions.items()]
        return F.coalesce(*cases)

    return F.when(is_click, of(CLICKS)).otherwise(of(ORDERS))


def _json(is_click: Column, text: Column) -> dict[str, Column]:
    """Return a text as JSON, read inside brackets of two kinds: `json` array<struct<field: variant>> and `json_keys`.

    Variants keep the type that was written; with other types `from_json` reads 5 and {"a": 1} as text. Spark's parsers
    stop after the first value, and no text after it can close both kinds of bracket.
    """
    from pyspark.sql import functions as F

    schema = f"array<struct<{', '.join(f'{field.name}: variant' for field in FIELDS)}>>"
    strict = {"mode": "PERMISSIVE", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    readable = is_click & F.col("required").isNotNull() & F.is_valid_utf8(text)
    return {
        "json": F.when(readable, F.from_json(F.concat(F.lit("["), text, F.lit("]")), schema, strict)),
        "json_keys": F.when(readable, F.json_object_keys(F.concat(F.lit('{"":'), text, F.lit("}")))),
    }


def _whole_json() -> Column:
    """Return struct<field: variant> of a text that is one JSON object and nothing else, otherwise null."""
    from pyspark.sql import functions as F

    return F.when((F.size("json") == 1) & (F.size("json_keys") == 1), F.get("json", F.lit(0)))


def _avro(is_click: Column) -> dict[str, Column]:
    """Decode the value by the writer schema of the row's version; all fields are null if that fails."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    def read(version: str) -> Column:
        decoded = from_avro("value", ORDERS_AVRO[version], {"mode": "PERMISSIVE"})
        return F.when(~is_click & (F.col("version") == version), decoded)

    return {f"avro_{version}": read(version) for version in ORDERS}


def _whole_avro() -> Column:
    """Return a record that fills the value to its end, in the fields of all versions, otherwise null.

    It is encoded again and compared, because Avro's decoder ignores bytes after the record, and there the fields of a
    later version are.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    def whole(version: str, names: tuple[str, ...]) -> Column:
        read = F.col(f"avro_{version}")
        again = F.when(read["event_id"].isNotNull(), to_avro(read, ORDERS_AVRO[version]))
        values = {**{name: read[name] for name in names}, "time_ms": F.unix_millis(read["time_ms"])}
        columns = [values.get(field.name, F.lit(None)).cast(field.type).alias(field.name) for field in FIELDS]
        return F.when(again == F.col("value"), F.struct(*columns))

    return F.coalesce(*[whole(version, names) for version, names in ORDERS.items()])


def _fields() -> Column:
    """Return the values of the right type; null for a missing value or another type."""
    from pyspark.sql import functions as F

    def value(name: str, type_name: str) -> Column:
        variant = F.col("click")[name]
        typed = F.when(F.schema_of_variant(variant) == type_name.upper(), F.try_variant_get(variant, "$", type_name))
        return F.when(F.array_contains("required", name), F.coalesce(typed, F.col("order")[name]))

    return F.struct(*[value(field.name, field.type).alias(field.name) for field in FIELDS])


def _present() -> Column:
    """Return the names of the fields that are there and not null, of whatever type."""
    from pyspark.sql import functions as F

    def there(name: str) -> Column:
        variant = F.col("click")[name]
        return F.when(variant.isNotNull() & ~F.is_variant_null(variant), F.lit(name))

    of_click = F.array_compact(F.array(*[there(field.name) for field in FIELDS]))
    return F.when(F.col("click").isNotNull(), of_click).when(F.col("order").isNotNull(), F.col("required"))


def _missing() -> Column:
    """Return the name of the first field that the version has and the record lacks, otherwise null."""
    from pyspark.sql import functions as F

    return F.get(F.array_except("required", "present"), F.lit(0))


def _bad() -> Column:
    """Return the name of the first field whose value is not good, otherwise null."""
    from pyspark.sql import functions as F

    def bad(field: Field) -> Column:
        return F.array_contains("required", field.name) & ~F.coalesce(F.expr(field.good), F.lit(False))

    return F.coalesce(*[F.when(bad(field), field.name) for field in FIELDS])


def _problem(config: Config, is_click: Column, text: Column) -> Column:
    """Return the first reason that applies, or null."""
    from pyspark.sql import functions as F

    def say(*parts: Column | str) -> Column:
        return F.concat(*[F.lit(part) if isinstance(part, str) else part for part in parts])

    def reason(condition: Column, code: Column | str, *message: Column | str) -> Column:
        return F.when(condition, F.struct(say(code).alias("code"), say(*message).alias("message")))

    def seconds(milliseconds: Column) -> Column:
        return F.format_string("%.3f", milliseconds / 1000.0)

    shown = [F.substring("version", 1, 40), F.substring("content_type", 1, 40)]
    versions = F.when(is_click, ", ".join(CLICKS)).otherwise(", ".join(ORDERS))
    content_type = F.when(is_click, JSON).otherwise(AVRO)
    missing, bad = F.col("missing"), F.col("bad")
    expected = F.coalesce(*[F.when(bad == field.name, field.says) for field in FIELDS])
    late_ms = first_written_ms() - F.col("fields.time_ms")
    skew_s, lateness_s = config.times.max_skew_s, config.times.allowed_lateness_s
    decoded = F.col("present").isNotNull()
    return F.coalesce(
        reason(F.col("version").isNull(), "no-schema-version", "the record has no header schema-version"),
        reason(
            F.col("required").isNull(),
            "unknown-schema-version",
            *("the header schema-version is '", shown[0], "'; versions of ", F.col("topic"), ": ", versions),
        ),
        reason(
            F.col("content_type") != content_type,
            "wrong-content-type",
            *("the header content-type is '", shown[1], "'; records of ", F.col("topic"), " are ", content_type),
        ),
        reason(F.col("value").isNull(), "malformed", "the record has no value"),
        reason(F.length("value") == 0, "malformed", "the value is empty"),
        reason(is_click & ~F.is_valid_utf8(text), "malformed", "the value is not UTF-8"),
        reason(is_click & ~decoded, "malformed", "the value is not one JSON object"),
        reason(~decoded, "malformed", "the value is not one Avro record of version ", shown[0]),
        reason(missing.isNotNull(), say("missing-field ", missing), missing, " is missing or null"),
        reason(bad.isNotNull(), say("bad-value ", bad), bad, " is not ", expected),
        reason(
            -late_ms > skew_s * 1000,
            "from-the-future",
            *("it happened ", seconds(-late_ms), f" s after its Kafka timestamp, more than {skew_s} s"),
        ),
        reason(
            late_ms > lateness_s * 1000,
            "too-late",
            *("it happened ", seconds(late_ms), f" s before its Kafka timestamp, more than {lateness_s} s"),
        ),
    )


def _event() -> dict[str, Column]:
    """Return the columns of the normal form; values that are not good are null."""
    from pyspark.sql import functions as F

    good = {field.name: F.when(F.expr(field.good), F.col("fields")[field.name]) for field in FIELDS}
    cents = good["amount_cents"].cast("decimal(14,0)")
    return {
        "event_id": good["event_id"],
        "event_type": F.when(F.col("order").isNotNull(), "order").otherwise(good["type"]),
        "user_id": good["user"],
        "product": good["product"],
        "country": good["country"],
        "amount": (cents / 100).cast("decimal(12,2)"),
        "event_time": F.timestamp_millis(good["time_ms"]),
        "source": F.struct("topic", "partition", "offset", "timestamp", "key", "headers"),
    }
