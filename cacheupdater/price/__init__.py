"""The policy `price`: spend the budget where readers notice.

`policy` is what an engine asks, one per partition. `table` holds what is known of each key, `learning` and `posterior`
move it, `index` says what a load is worth, `market` what it costs now. `meter` and `sampler` say how it goes.
"""

from cacheupdater.price.market import Market
from cacheupdater.price.policy import Price

__all__ = ["Market", "Price"]
