"""Fakes for tests: of users' own loaders, services and applications, and of ours.

Each fake passes the same contract suite as the adapter that it stands for. docs/how-to/test.md shows how they are used.
The service never imports them.
"""
