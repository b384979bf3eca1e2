"""The rows of the table, in five modules: finding a file costs more at import than the rows in it. Import
key_table.py."""
