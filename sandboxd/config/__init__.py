"""Settings of the daemon: their definition, and their values from flags, environment and file."""

from sandboxd.config.definition import ACCOUNT_NAME, Config
from sandboxd.config.loading import ConfigInvalid, Loaded, load

__all__ = ["ACCOUNT_NAME", "Config", "ConfigInvalid", "Loaded", "load"]
