"""The columns of a lake: those of an event, and the two that partition it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.lake.positions import LakeError
from pipeline.schemas import EVENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

PARTITIONS = ("date", "topic")
SCHEMA = f"{EVENT}, date date, topic string"


def nothing(spark: SparkSession, schema: str) -> DataFrame:
    """Return a frame of these columns without rows. For that of `createDataFrame` Spark starts Python workers."""
    from pyspark.sql import functions as F

    return spark.range(0).select(F.from_json(F.lit("{}"), schema).alias("row")).select("row.*")


def refuse_others(spark: SparkSession, place: str, schema: str, *, adopting: bool) -> None:
    """Raises LakeError for a table that cannot take rows of `schema`."""
    from delta.tables import DeltaTable
    from pyspark.sql.types import StructType

    table = DeltaTable.forPath(spark, place)
    found = differences(table.toDF().schema, StructType.fromDDL(schema))
    by = tuple(table.detail().select("partitionColumns").collect()[0][0])
    if by != PARTITIONS:
        found.append(f"it is partitioned by {', '.join(by) or 'nothing'}, not by {', '.join(PARTITIONS)}")
    if found:
        raise LakeError(
            f"{place} is a Delta table of other columns: {'; '.join(found)}",
            "Name another folder; or run the version of the pipeline that wrote it, or a later one"
            + ("" if adopting else ". Nothing was written"),
        )


def differences(there: DataType, ours: DataType, name: str = "") -> list[str]:
    """Return why rows of `ours` cannot go into a table of `there`; fields that the table lacks are no reason."""
    from pyspark.sql.types import ArrayType, StructType

    if isinstance(there, StructType) and isinstance(ours, StructType):
        fields = {field.name: field.dataType for field in ours.fields}
        found = []
        for field in there.fields:
            inner = f"{name}.{field.name}" if name else field.name
            if field.name not in fields:
                found.append(f"{inner} is no field of this pipeline's events")
            else:
                found += differences(field.dataType, fields[field.name], inner)
        return found
    if isinstance(there, ArrayType) and isinstance(ours, ArrayType):
        return differences(there.elementType, ours.elementType, f"{name}[]")
    if there == ours:
        return []
    return [f"{name} is {there.simpleString()}, not {ours.simpleString()}"]
