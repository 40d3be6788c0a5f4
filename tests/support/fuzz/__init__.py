"""What strangers may hand to an updater, and who invents it."""
