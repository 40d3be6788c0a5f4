"""Applications that `watch` their sessions and models, random programs of them, and PostgreSQL's own record of their changes."""
