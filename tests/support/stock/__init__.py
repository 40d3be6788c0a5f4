"""Applications as their frameworks make them, which adopt the client."""
