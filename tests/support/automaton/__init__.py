"""A plain model of the automaton, held against the engine: what takes part, and what is compared."""
