"""Stands in for mini-swe-agent."""

from __future__ import annotations

MODULES = ("minisweagent.exceptions", "minisweagent.utils.serialize")


class Submitted(Exception):
    def __init__(self, *messages):
        super().__init__()
        self.messages = messages


def recursive_merge(*dictionaries):
    merged = {}
    for dictionary in dictionaries:
        merged.update(dictionary or {})
    return merged
