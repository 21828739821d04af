"""Settings of the daemon: their definition, and their values from flags, environment and file."""

from sandboxd.config.catalogue import BY_VARIABLE, OF_A_SERVER, SETTINGS
from sandboxd.config.definition import (
    ACCOUNT_NAME,
    CONFIGURED_NAME,
    CONFIGURED_NAME_RULE,
    Config,
    DataSourceTable,
    EnvironmentTable,
    UpstreamTable,
)
from sandboxd.config.loading import ConfigInvalid, Loaded, load

__all__ = [
    "ACCOUNT_NAME",
    "BY_VARIABLE",
    "CONFIGURED_NAME",
    "CONFIGURED_NAME_RULE",
    "OF_A_SERVER",
    "SETTINGS",
    "Config",
    "ConfigInvalid",
    "DataSourceTable",
    "EnvironmentTable",
    "Loaded",
    "UpstreamTable",
    "load",
]
