"""The one place that asks a cluster: what can be asked, what comes back, and records between a topic and a program.

Responsible for requests, where they go, and which errors are tried again; for the one consumer and the one producer of
a command; for how a record is written and read as text. Not responsible for options or for what is printed
(`tools/kafka/`, `tools/commands/`).

kafka-python makes the connections (TCP, TLS, SASL); the messages are those of `pykbroker_wire`, which has every API and
keeps each error code and message that kafka-python's own admin methods drop (decision 26). The text forms of records
are those of kcat: its format strings and its JSON envelope.
"""
