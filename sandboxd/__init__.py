"""sandboxd: persistent, isolated Linux workspaces for AI agents."""

from importlib.metadata import version

__version__ = version("sandboxd")
