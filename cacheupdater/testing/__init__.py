"""Fakes and servers for tests of the service, and of programs that use it.

The fakes pass the same contract suites as the adapters. The servers are real ones, started on this machine. They ship with
the package because authors of loaders and of applications need the same ones. The service itself never imports them.
"""
