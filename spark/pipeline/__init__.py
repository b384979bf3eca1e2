"""An events pipeline on Spark Structured Streaming: raw topics -> checked events -> lake, aggregates, joins.

`schemas` says what the data is, `transforms` are functions DataFrame -> DataFrame, `sources` and `sinks` touch Kafka
and the lake, `queries` puts them together as jobs, and `job` runs jobs as a program.
"""
