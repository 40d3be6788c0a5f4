"""What both ends must agree on: packs and frames (`wire`), fenced writes (`fence`, and the scripts beside it), topic URLs (`broker`).

The service takes nothing else from the client. Plain functions and values: no socket, no thread, no clock.
"""
