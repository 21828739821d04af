"""Contexts that run code and keep its variables, and what their runs report."""
