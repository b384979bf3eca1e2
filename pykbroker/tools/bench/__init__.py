"""`pykbroker bench`: a small load on any Kafka, and its result.

Responsible for sending and reading records, for the pace, for the time of each record, and for the processes that do
the work. Not responsible for options and tables (`tools/commands/`).

The clients are kafka-python's, so their rate is a lower bound of the rate that a cluster can serve. Each result shows
how busy the clients were.
"""
