"""What a test of the service, or of a program that uses it, needs to stand up a world of its own.

Fakes that obey the same contract suites as the adapters, and starters of real servers on this machine. They ship
with the package because whoever writes a loader or an application on top of the client wants the same ones; the
service itself never imports them.
"""
