"""Records between a topic and standard input or output: `pykbroker consume` and `pykbroker produce`.

Responsible for how a record is written and read as text, for where a read begins and ends, and for the one consumer
and the one producer of a command. Not responsible for options (`cli/`), nor for what else a cluster is asked
(`admin/`).

The text forms are those of kcat: its format strings and its JSON envelope. kafka-python makes the connections.
"""
