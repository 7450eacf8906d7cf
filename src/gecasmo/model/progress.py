"""The progress bar of a fit."""

from __future__ import annotations

from typing import Any


class progress_bar:
    """A progress bar, if one is wanted."""

    def __init__(self, name: str, wanted: bool | None) -> None:
        import sys

        self.name = name
        self.wanted = sys.stderr.isatty() if wanted is None else wanted

    def __enter__(self) -> Any:
        if not self.wanted:
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("iteration {task.completed}/{task.total}"),
            TextColumn("objective per page {task.fields[objective]:.6f}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.bar.start()
        task = self.bar.add_task(f"Fitting {self.name}", total=None, objective=float("nan"))

        def show(iteration: int, most: int, objective: float) -> None:
            self.bar.update(task, completed=iteration, total=most, objective=objective)

        return show

    def __exit__(self, *_: object) -> None:
        if self.wanted:
            self.bar.stop()
