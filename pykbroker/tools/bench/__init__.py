"""`pykbroker bench`: a small load on any Kafka, and what came of it.

Responsible for what is sent and read, at which pace, for how long each record took, and for the processes that do it.
Not responsible for options and tables (`tools/commands/`).

The clients are kafka-python's: a rate that they reach is a lower bound of what a cluster serves. Each result says how
busy they were.
"""
