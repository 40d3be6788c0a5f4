"""Random programs of Redis commands, played on redis-py and on our clients: the same replies, and the hints of a model.

`drawing` makes a program from its seed, `playing` runs it, `model` says which hints it leaves, `campaign` compares. To see one
program again:

    PYTHONPATH=tests/support python -m programs SEED
"""
