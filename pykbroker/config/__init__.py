"""Configuration: the table of keys, server.properties, typed values, topic and dynamic layers, DescribeConfigs entries.

This module imports nothing, so a caller that needs only the table loads nothing else. See key_table.py for the keys,
typed_config.py for `Config`, and load.py for making one.
"""
