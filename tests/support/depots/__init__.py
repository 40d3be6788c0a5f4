"""Depots on real servers, for tests."""
