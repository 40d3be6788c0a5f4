"""The decisions: pure, no await, no clock, no randomness of its own, no logging, no driver.

Time and randomness come in as arguments; work to do goes out as return values.
"""
