"""`gecasmo models` and `gecasmo describe MODEL`: what is in the zoo."""

from __future__ import annotations

from typing import Annotated

import typer


def models() -> None:
    """List the models of the zoo."""
    from rich.console import Console
    from rich.table import Table

    from gecasmo.models import CATALOGUE

    table = Table("model", "what a user does", "coins", box=None, pad_edge=False)
    for name, model in CATALOGUE.items():
        instance = model()
        table.add_row(name, (model.__doc__ or "").split("\n")[0], ", ".join(instance.forms))
    Console().print(table)


def describe(
    model: Annotated[str, typer.Argument(help="A name that `gecasmo models` lists.")],
) -> None:
    """Show a model: its program, its coins and its automaton. Example: gecasmo describe DBN"""
    from gecasmo.errors import ModelError
    from gecasmo.models import CATALOGUE

    by_name = {name.lower(): found for name, found in CATALOGUE.items()}
    if model.lower() not in by_name:
        raise ModelError(f"There is no model '{model}'. There are: {', '.join(CATALOGUE)}.")
    print(by_name[model.lower()]())
