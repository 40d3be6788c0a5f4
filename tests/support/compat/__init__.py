"""Runs redis-py's own test suite against redis-py and against our clients, and compares test by test.

`make compat` calls `run`. The modules `recording` and `replacing` are pytest plugins: they run inside redis-py's suite, in a
virtual environment of its own.
"""
