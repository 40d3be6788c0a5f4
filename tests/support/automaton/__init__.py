"""A plain model of the automaton, random schedules in which the engine is compared with it, and the promises of a schedule."""
