"""Faults that a test orders: rules that match requests of clients, and say what happens to them.

`fault_rule.py` is a rule as a value, `named_parts.py` says where each API names topics and partitions, `rewriting.py`
makes and changes answers; these are pure. `rule_set.py` has the rules that are set, with their counts. Not responsible
for how a node serves: `testing/watched_dispatcher.py` asks the rules.
"""
