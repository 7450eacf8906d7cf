"""`gecasmo models`: what is in the zoo."""

from __future__ import annotations

from gecasmo.cli.bundles import bundled
from gecasmo.cli.output import Output


@bundled
def models(output: Output) -> None:
    """List the models of the zoo.

    [bold]Example[/bold]

    [cyan]gecasmo models[/cyan]
    """
    from rich.table import Table

    from gecasmo.models import CATALOGUE

    listed = [
        {
            "model": name,
            "what a user does": (model.__doc__ or "").split("\n")[0],
            "coins": list(model().forms),
        }
        for name, model in CATALOGUE.items()
    ]
    table = Table("model", "what a user does", "coins", box=None, pad_edge=False)
    for row in listed:
        table.add_row(str(row["model"]), str(row["what a user does"]), ", ".join(row["coins"]))
    output.show({"models": listed}, table)
