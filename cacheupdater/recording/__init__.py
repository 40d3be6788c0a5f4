"""`record` and `plan`: a minute of a running service, and what another budget would have bought.

`recorder` listens to hints and `watch` loads some of their keys, both for as long as one `cacheupdater record` lasts.
`recording` is the file that they leave, and `plan` answers from the file alone.
"""
