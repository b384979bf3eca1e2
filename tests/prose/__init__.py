"""The prose of the project, read by a program: docstrings, comments, texts of logs and errors, pages.

`python -m tests.prose` prints what HOUSE's table of words finds, `--check` compares the counts with `left.toml`.
"""
