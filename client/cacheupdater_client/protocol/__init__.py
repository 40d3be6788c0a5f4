"""What both ends must agree on.

Packs and frames (`wire`), fenced writes (`fence`, and the scripts beside it), topic URLs (`broker`), what a key says
(`patterns`), and how a value is written (`encoding`, with `spelling` and `odd_values`).

The service takes nothing else from the client. Plain functions and values: no socket, no thread, no clock.
"""
