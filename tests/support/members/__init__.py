"""Members that share a depot, in virtual time: real queues, a simulated network, processes that stop and die, clocks that jump.

`plan` draws a schedule from its seed, `world` plays it, `depot` judges each step, `campaign` plays many and plants faults. To see
one schedule again:

    PYTHONPATH=tests/support python -m members SEED
"""
