"""Generates files from the async classes of the SDK: the sync classes and the reference."""
