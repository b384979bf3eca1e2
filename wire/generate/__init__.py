"""From Apache Kafka's message definitions to Python: schemas in our own language, and the classes generated from them.

Not shipped: nothing below `wire/pykbroker_wire` imports this package.
"""
