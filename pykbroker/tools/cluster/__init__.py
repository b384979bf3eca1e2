"""The one package that sends requests to a cluster, and that moves records between a topic and a program.

Responsible for requests, for the node that each goes to, and for the errors after which a request is repeated. Also
responsible for the one consumer and the one producer of a command, and for the text form of records. Not responsible
for options or for output (`tools/kafka/`, `tools/commands/`).

Requests go over a blocking socket (node_connection.py). The messages are those of `pykbroker_wire`, which has every API
and keeps each error code and message of a node (decision 26). kafka-python is imported only where records are produced
or consumed. The text forms of records are those of kcat: its format strings and its JSON envelope.
"""
