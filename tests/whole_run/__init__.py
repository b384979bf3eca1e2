"""`make test` as a whole: both sessions of pytest, a second chance for tests that failed, and one closing line.

`__main__.py` runs the sessions. `recorder.py` is a plugin of pytest that records the outcome of a session.
`forgiving.py` decides, from values alone, which failures may be tried again and whether the run is green. `known.py`
reads the list of tests that were flaky. `leaks.py` finds processes that outlived their session. `timings.py` stores the
time of each file of tests, and compares it with the budget of each folder.
"""
