"""The prose of the project, read by a program: docstrings, comments, texts of logs, pages.

`python -m tests.prose` prints what its rules find; `make lint` fails if they find anything.
"""
