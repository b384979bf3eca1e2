"""What can be asked of a cluster, and what comes back: typed values, for the command lines above.

Responsible for requests, where they go, and which errors are tried again. Not responsible for options or for what is
printed (`kafka_tools/`, `cli/`).

kafka-python makes the connections (TCP, TLS, SASL); the messages are those of `pykbroker_wire`, which has every API and
keeps each error code and message that kafka-python's own admin methods drop (decision 26).
"""
