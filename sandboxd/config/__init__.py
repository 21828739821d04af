"""Settings of the daemon: what there is, and what is set by flag, environment or file."""

from sandboxd.config.definition import ACCOUNT_NAME, Config
from sandboxd.config.loading import ConfigInvalid, Loaded, load

__all__ = ["ACCOUNT_NAME", "Config", "ConfigInvalid", "Loaded", "load"]
