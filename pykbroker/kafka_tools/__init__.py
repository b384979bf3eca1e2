"""Apache Kafka's command line tools, by name: `python -m pykbroker.kafka_tools topics --list …`.

Responsible for Kafka's options and Kafka's words. Not responsible for what is asked of a cluster (`admin/`).
"""
