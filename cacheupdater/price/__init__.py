"""The policy `price`: spend the budget where readers notice.

Each partition's engine asks its `policy`. `table` holds what is known of each key; `learning` and `posterior` update it.
`index` says what a load is worth, `market` what it costs now. `meter` and `sampler` measure how fresh the reads are.
"""

from cacheupdater.price.market import Market
from cacheupdater.price.policy import Price

__all__ = ["Market", "Price"]
