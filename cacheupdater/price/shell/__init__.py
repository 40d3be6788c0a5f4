"""What runs beside the partitions for `price`: the market's clock, our shares of budgets, memory and reports.

The service makes `pricing`, which owns the others. Each is a task or a callback of the event loop, and lives as long as the
process. What a load is worth is decided in `cacheupdater.price`, which is pure.
"""
