"""How fresh are the values that readers see, and how many rows does that cost? A simulator, and its results.

`worlds` and `semireal` make reads and changes. `baselines` and `bounds` say what other policies and an oracle would load.
`ours` drives the shipped engine and policy. `truth` judges them all by the same rule. `run` compares and reports.
"""
