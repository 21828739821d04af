"""The backend of matplotlib: `show()` displays the open figures in the order of the output."""

from __future__ import annotations

import sys
from os import environ
from types import ModuleType
from typing import Any

from .displays import Displays

NAME = "sandboxd_figures"


class Finder:
    """Finds the backend, which is no file of the image, when matplotlib imports it."""

    displays: Displays | None = None
    """Of the context, once there is one."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != NAME:
            return None
        from importlib.machinery import ModuleSpec

        loader: Any = self
        return ModuleSpec(NAME, loader)

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        from matplotlib.backend_bases import FigureManagerBase
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        def show(*ignored: Any, **options: Any) -> None:
            if self.displays is not None:
                self.displays.figures()

        def new_figure_manager(number: int, *given: Any, **options: Any) -> Any:
            from matplotlib.figure import Figure

            kind = options.pop("FigureClass", Figure)
            return new_figure_manager_given_figure(number, kind(*given, **options))

        def new_figure_manager_given_figure(number: int, figure: Any) -> Any:
            return FigureManagerBase(FigureCanvasAgg(figure), number)

        module.__dict__.update(
            FigureCanvas=FigureCanvasAgg,
            FigureManager=FigureManagerBase,
            backend_version="1",
            draw_if_interactive=lambda: None,
            new_figure_manager=new_figure_manager,
            new_figure_manager_given_figure=new_figure_manager_given_figure,
            show=show,
        )


FINDER = Finder()


def install() -> None:
    """Before matplotlib is loaded: it asks for its backend once."""
    sys.meta_path.append(FINDER)
    environ.setdefault("MPLBACKEND", "module://" + NAME)
