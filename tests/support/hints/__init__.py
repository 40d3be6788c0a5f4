"""Peers that send hints, and listeners that take them."""
