"""`make test` as a whole: both sessions of pytest, a second chance for tests that failed, and one closing line.

`__main__.py` runs the sessions. `recorder.py` is a plugin of pytest that writes down how a session went.
`forgiving.py` decides, from values alone, which failures may be tried again and whether the run is green. `known.py`
reads the list of tests that were flaky. `leaks.py` finds processes that outlived their session. `timings.py` keeps what
each file of tests used, and compares it with what each folder may use.
"""
