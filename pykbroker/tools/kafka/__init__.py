"""Apache Kafka's command line tools, by name: `python -m pykbroker.tools.kafka topics --list …`.

Responsible for Kafka's options and Kafka's output. Not responsible for requests to a cluster (`tools/cluster/`).
"""
