"""The columns of a row, as in Spark's Kafka source, and the choice of columns by a schema.

Invariant: a schema that the user passes is a subset of the columns, each with its type. Any other schema is refused,
because this module converts no types.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pykbroker_wire.records.columns import WantedColumns
from pyspark_pykbroker.faults import WrongOption

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

#: The columns that are filled from records; topic and partition are the same in all rows of a piece.
FILLED = {
    "key": WantedColumns.KEY,
    "value": WantedColumns.VALUE,
    "offset": WantedColumns.OFFSET,
    "timestamp": WantedColumns.TIMESTAMP,
    "timestampType": WantedColumns.TIMESTAMP_TYPE,
    "headers": WantedColumns.HEADERS,
}


def all_columns(include_headers: bool) -> StructType:
    """Return the Kafka source's schema."""
    types = {**_TYPES, "headers": _HEADERS} if include_headers else _TYPES
    return StructType([StructField(name, kind) for name, kind in types.items()])


def columns_of(schema: StructType, include_headers: bool) -> list[str]:
    """Return the names of the columns of a schema, in order. Raises WrongOption."""
    known: dict[str, DataType] = {field.name: field.dataType for field in all_columns(include_headers)}
    names = [field.name for field in schema]
    for field in schema:
        if field.name == "headers" and not include_headers:
            raise WrongOption("the schema has headers: set includeHeaders to true")
        if field.name not in known:
            raise WrongOption(f"the schema has a column {field.name!r}; there are {', '.join(known)}")
        if field.dataType.simpleString() != known[field.name].simpleString():
            raise WrongOption(
                f"the column {field.name} is of type {known[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}: read it as it is, and cast it in a select"
            )
    if len(set(names)) < len(names):
        raise WrongOption(f"the schema names a column twice: {', '.join(names)}")
    return names


def wanted_of(names: list[str]) -> WantedColumns:
    wanted = WantedColumns(0)
    for name in names:
        wanted |= FILLED.get(name, WantedColumns(0))
    return wanted
