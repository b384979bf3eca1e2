"""The schemas of the data: the versions of the raw records, the condition for a good value, and the normal form.

A raw record names its version in the header `schema-version`. A new version is a row in `CLICKS` or `ORDERS`; versions
only add fields, and the normal form has null if a version lacks one.

    event_id, user, product    as in the normal form
    type                       view or cart; each record in `orders` is an order
    country                    since version 2
    amount_cents               orders only
    time_ms                    when it happened, milliseconds since 1970 by the clock of the app that made the event
"""

from __future__ import annotations

import json
from dataclasses import dataclass

EVENT = """
    event_id string, event_type string, user_id string, product string, country string, amount decimal(12,2),
    event_time timestamp,
    source struct<topic: string, partition: int, offset: bigint, timestamp: timestamp, key: binary,
                  headers: array<struct<key: string, value: binary>>>
"""
EVENT_COLUMNS = ("event_id", "event_type", "user_id", "product", "country", "amount", "event_time", "source")


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a raw record. `good` is an SQL condition over the column `fields.<name>`, which is null if the value
    has the wrong type; `says` completes the sentence "<name> is not ..."."""

    name: str
    type: str
    good: str
    says: str


# Java's regular expressions in SQL's quotes; \z because $ would accept a line feed at the end. An id is a part of keys,
# between slashes. Bytes that are not UTF-8 become U+FFFD.
_ID = r"^[A-Za-z0-9._:-]{1,100}\\z"
_TEXT = r"^[^\\p{Cntrl}\\uFFFD]{1,200}\\z"

FIELDS = (
    Field("event_id", "string", f"rlike(fields.event_id, '{_ID}')", "1 to 100 letters, digits and . _ : -"),
    Field("type", "string", "fields.type IN ('view', 'cart')", "view or cart"),
    Field("user", "string", f"rlike(fields.user, '{_TEXT}')", "text of 1 to 200 characters"),
    Field("product", "string", f"rlike(fields.product, '{_TEXT}')", "text of 1 to 200 characters"),
    Field("country", "string", "rlike(fields.country, '^[A-Z]{2}\\\\z')", "two capital letters"),
    Field("amount_cents", "bigint", "fields.amount_cents BETWEEN 0 AND 999999999999", "0 to 999999999999"),
    # From 1970 to the end of 9999; the Kafka timestamp decides whether that time is possible.
    Field("time_ms", "bigint", "fields.time_ms BETWEEN 0 AND 253402300799999", "milliseconds from 1970 to 9999"),
)

CLICKS = {
    "1": ("event_id", "type", "user", "product", "time_ms"),
    "2": ("event_id", "type", "user", "product", "time_ms", "country"),
}
ORDERS = {
    "1": ("event_id", "user", "product", "amount_cents", "time_ms"),
    "2": ("event_id", "user", "product", "amount_cents", "time_ms", "country"),
}


def _avro(names: tuple[str, ...]) -> str:
    types = {field.name: {"string": "string", "bigint": "long"}[field.type] for field in FIELDS}
    fields: list[dict[str, object]] = [{"name": name, "type": types[name]} for name in names]
    for field in fields:
        if field["name"] == "time_ms":
            field["type"] = {"type": "long", "logicalType": "timestamp-millis"}
    return json.dumps({"type": "record", "name": "Order", "namespace": "pipeline", "fields": fields})


# The writer schemas of orders for any Avro library.
ORDERS_AVRO = {version: _avro(names) for version, names in ORDERS.items()}

SCHEMA_VERSION = "schema-version"
CONTENT_TYPE = "content-type"
#: Headers of a dead letter that was sent again: how often, and when its record was written for the first time.
REDRIVE_COUNT = "redrive.count"
REDRIVE_TIMESTAMP = "redrive.timestamp"
JSON = "application/json"
AVRO = "avro/binary"
