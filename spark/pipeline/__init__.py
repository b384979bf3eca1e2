"""An events pipeline on Spark Structured Streaming: raw topics -> checked events -> lake, aggregates, joins.

`schemas` describes the data, `transforms` are functions DataFrame -> DataFrame, `sources` and `sinks` access Kafka and
the lake, `queries` puts them together as jobs, and `job` runs jobs as a program.
"""
