"""What a daemon says to the settings of a deployment."""

from __future__ import annotations

from collections.abc import Mapping

from sandboxd.config import Config
from sandboxd.config.loading import load

OF_THE_CONTAINER = {"OBJECT_STORE_ENV_FILE", "POD_IP", "WORKER_DOMAIN", "DOCKER_HOST"}
"""Variables of deploy/worker_entrypoint, and of the engine's clients."""


def variables() -> set[str]:
    """Names of all settings in the environment."""
    aliases = (field.validation_alias for field in Config.model_fields.values())
    return {str(name) for alias in aliases for name in getattr(alias, "choices", [alias])}


def check(environment: Mapping[str, str]) -> Config:
    """The settings; an AssertionError names variables that mean nothing."""
    known = variables() | OF_THE_CONTAINER
    unknown = {name for name in environment if name not in known and not name.startswith("AWS_")}
    assert not unknown, f"the daemon has no setting {', '.join(sorted(unknown))}"
    return load(environment=environment).config
