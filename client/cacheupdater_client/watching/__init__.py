"""What the hooks for SQLAlchemy and Django share: from changed rows to keys, and from a commit to calls of Redis.

`cacheupdater_client.sqlalchemy` and `cacheupdater_client.django` learn which rows a transaction changes. This folder knows
neither framework. `rules` names the keys of a row, `keys` holds the keys of one transaction, and `announcing` tells Redis
after the commit. Nothing here is loaded unless an application watches its sessions or models.
"""
