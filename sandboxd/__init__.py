"""sandboxd: persistent, isolated Linux workspaces for AI agents."""

__version__: str


def __getattr__(name: str) -> str:
    """To look the version up takes a tenth of a short call of the command line."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    globals()[name] = found = version("sandboxd")
    return found
