"""How fresh are the values that readers see, for the rows that it cost? A simulator, and what it found.

`worlds` and `semireal` make reads and changes, `baselines` and `bounds` say what others and an oracle would load,
`ours` drives the shipped engine and policy, `truth` judges them all by the same rule, `run` compares and reports.
"""
