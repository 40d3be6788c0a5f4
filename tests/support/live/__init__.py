"""Whole updaters on real servers, and what runs beside them."""
