"""Configuration: the table of keys, server.properties, typed values, topic and dynamic layers, DescribeConfigs entries.

Nothing is imported here: a caller that needs only the table does not pay for the rest. See key_table.py for the keys,
load.py for `Config`.
"""
