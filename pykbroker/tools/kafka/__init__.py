"""Apache Kafka's command line tools, by name: `python -m pykbroker.tools.kafka topics --list …`.

Responsible for Kafka's options and Kafka's words. Not responsible for what is asked of a cluster (`tools/cluster/`).
"""
