"""What an environment is built from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxd.environments.environment import PackageKind

RECIPES = Path(__file__).parent / "recipes"
"""The Dockerfiles of the built-in environments, and what they need."""
SECURE_IMAGE = "sandbox-secure:latest"
"""Name of the image of the default environment, unless the operator names another one."""


@dataclass(frozen=True, kw_only=True)
class Debian:
    """A Debian of this suite: pulled, or made from its packages where no registry answers."""

    suite: str


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """An image of a registry."""

    reference: str


@dataclass(frozen=True, kw_only=True)
class Other:
    """The image of another environment."""

    name: str


@dataclass(frozen=True, kw_only=True)
class NpmPackages:
    """Packages of npm, fixed by a lock file. One of them is Node.js itself."""

    lock: Path


@dataclass(frozen=True, kw_only=True)
class Wheels:
    """Wheels for a version of Python, fixed by a lock file."""

    lock: Path
    python: str


@dataclass(frozen=True, kw_only=True)
class HostPython:
    """A copy of this version of Python, if the host has it."""

    version: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """One way to get the base of an environment, and the files that its Dockerfile adds."""

    base: Debian | Pulled | Other
    layers: Sequence[NpmPackages | Wheels | HostPython] = ()
    """One of each kind at most: each is a directory beside the Dockerfile."""
    stages: Sequence[str] = ()
    """Recipes that are applied to the base before that of the environment."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """An environment: its Dockerfile and where the base may come from, or an image to use."""

    name: str
    description: str = ""
    dockerfile: Path | None = None
    sources: Sequence[Source] = ()
    """The first that can be used is taken."""
    image: str = ""
    """Name of an image to use as it is, in place of a Dockerfile."""
    advice: str = ""
    """What would help if no source can be used, as the end of a sentence."""
    python: str = ""
    """Version of Python that commands find, as in `3.11`; empty if that is not known."""
    node: str = ""
    """Major version of Node.js; empty if that is not known."""
    strict_policy: str = "strict"
    """Command policy that stands for `strict`: another where that would forbid its main program."""
    packages: PackageKind = PackageKind.PYTHON
    """What sessions can add to it."""

    @property
    def made_from(self) -> str:
        """Distinguishes it from another definition of the same name. A built-in recipe may change
        with a release and keep this value."""
        if self.dockerfile is None:
            return f"image {self.image}"
        is_recipe = self.dockerfile.parent == RECIPES
        return f"dockerfile {self.dockerfile.name if is_recipe else self.dockerfile}"


def recipe(name: str) -> Path:
    return RECIPES / f"{name}.Dockerfile"


def default_definition(image: str) -> Definition:
    """The default environment. It is built only if the operator names no image."""
    is_built = image == SECURE_IMAGE
    return Definition(
        name="default",
        description="A shell, the usual text and archive tools, and Python 3.11",
        python="3.11" if is_built else "",
        dockerfile=recipe("default") if is_built else None,
        sources=(Source(base=Debian(suite="bookworm")),) if is_built else (),
        image=image,
        advice=(
            "let the engine reach an image registry, or install mmdebstrap on the host and run "
            "./scripts/build_images"
        ),
    )


_ON_DEFAULT = Other(name="default")


def _wheels(name: str, python: str) -> Wheels:
    return Wheels(lock=RECIPES / f"{name}.lock", python=python)


_WHEELS_ADVICE = "let the daemon's host reach the package index that pip and uv are set up for"
BUILT_IN: Sequence[Definition] = (
    Definition(
        name="python3.11",
        description="Python 3.11 with numpy, pandas and requests",
        python="3.11",
        dockerfile=recipe("python3.11"),
        sources=(Source(base=_ON_DEFAULT, layers=(_wheels("python", "3.11"),), stages=("tools",)),),
        advice=_WHEELS_ADVICE,
    ),
    Definition(
        name="python3.12",
        description="Python 3.12 with numpy, pandas and requests",
        python="3.12",
        dockerfile=recipe("python3.12"),
        sources=(
            Source(
                base=Pulled(reference="python:3.12-slim-bookworm"),
                layers=(_wheels("python", "3.12"),),
                stages=("default", "tools"),
            ),
            Source(
                base=_ON_DEFAULT,
                layers=(HostPython(version="3.12"), _wheels("python", "3.12")),
                stages=("tools",),
            ),
        ),
        advice=(
            "let the engine reach an image registry, install Python 3.12 on the host (pyenv, or "
            'python3.12 on PATH), or set `image` in [environments."python3.12"]'
        ),
    ),
    Definition(
        name="python3.13",
        description="Python 3.13",
        python="3.13",
        dockerfile=recipe("python3.13"),
        sources=(Source(base=Debian(suite="trixie"), stages=("default", "tools")),),
        advice="let the engine reach an image registry or a Debian mirror",
    ),
    Definition(
        name="node20",
        description="Node.js 20 with npm, TypeScript (tsc, tsx), and Python 3.11",
        python="3.11",
        node="20",
        dockerfile=recipe("node20"),
        sources=(
            Source(
                base=_ON_DEFAULT,
                layers=(NpmPackages(lock=RECIPES / "node20.lock.json"),),
                stages=("tools",),
            ),
        ),
        advice=(
            "let the daemon's host reach the npm registry (SANDBOXD_NPM_REGISTRY), or set `image` "
            "in [environments.node20]"
        ),
        strict_policy="strict-node",
        packages=PackageKind.NPM,
    ),
    Definition(
        name="data",
        description=(
            "Python 3.11 with numpy, pandas, scipy, scikit-learn, matplotlib, openpyxl, requests "
            "and others"
        ),
        python="3.11",
        dockerfile=recipe("data"),
        sources=(Source(base=Other(name="python3.11"), layers=(_wheels("data", "3.11"),)),),
        advice=_WHEELS_ADVICE,
    ),
)
"""The environments that exist without configuration."""
