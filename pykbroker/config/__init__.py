"""Configuration: the table of keys, server.properties, typed values, topic and dynamic layers, DescribeConfigs entries.

Nothing is imported here, so that a caller that needs only the table loads nothing else. See key_table.py for the keys,
load.py for `Config`.
"""
