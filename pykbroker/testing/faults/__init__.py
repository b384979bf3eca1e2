"""Fault injection for tests: rules that match requests of clients, and change the answers to these requests.

`fault_rule.py` has a rule as a value, `named_parts.py` the places where each API names topics and partitions, and
`rewriting.py` makes and changes answers; these are pure. `rule_set.py` has the active rules with their counts. Not
responsible for serving requests: `testing/watched_dispatcher.py` applies the rules.
"""
