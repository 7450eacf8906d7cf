"""`gecasmo paper`: the experiment of the GCM paper, reproduced and beaten.

It is an example, not a part of the package: examples/paper.py of a checkout.
"""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any

import typer

from gecasmo.cli.flags import bundled
from gecasmo.cli.output import Output


@bundled
def paper(
    output: Output,
    seeds: Annotated[int, typer.Option(help="How many logs to simulate.", min=1, max=100)] = 4,
    users: Annotated[int, typer.Option(help="Users of each simulated log.", min=200)] = 20_000,
    chart: Annotated[
        Path | None, typer.Option(help="Draw the paper's bar chart into this file (PNG, SVG, PDF).")
    ] = None,
) -> None:
    """Reproduce the experiment of the GCM paper, and beat it; works in a checkout.

    Simulates its log, fits CZM and UBM through the position of items, through a network, with a
    table of items and with both, and scores them on users never seen.

    [bold]Example[/bold]

    [cyan]gecasmo paper --seeds 2 --chart perplexity.png[/cyan]
    """
    experiment = find_experiment()
    if chart is not None:
        _check_chart(chart, experiment)  # before the work, not after it
    chosen = experiment.SEEDS[:seeds]
    with output.working("Simulating") as tell:
        result = experiment.run_paper(chosen, users, tell=tell)
    if chart is not None:
        experiment.draw_perplexity(result, chart)
    data = {
        "seeds": chosen,
        "users": users,
        "models": result.means(),
        "by_rank": result.by_rank(),
        "claims": [{"claim": claim, "holds": holds} for claim, holds in result.claims()],
        "chart": chart,
    }
    output.show(data, "" if output.json else experiment.told(result))
    if chart is not None:
        output.say(f"\nThe chart is in {chart}.")


def find_experiment() -> Any:
    """The module examples/paper.py of the checkout that this package is run from."""
    import gecasmo
    from gecasmo.errors import GecasmoError

    path = Path(gecasmo.__file__).parents[2] / "examples" / "paper.py"
    spec = spec_from_file_location("gecasmo_paper", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise GecasmoError(
            "The paper's experiment is examples/paper.py of gecasmo's source, which this "
            "installation does not have: run the command in a checkout."
        )
    module = sys.modules[spec.name] = module_from_spec(spec)  # data classes look it up there
    spec.loader.exec_module(module)
    return module


def _check_chart(path: Path, experiment: Any) -> None:
    from gecasmo.errors import GecasmoError

    experiment.figure()  # says so if Matplotlib is not there
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise GecasmoError(f"--chart {path}: the name has to end in .png, .svg or .pdf.")
    if not path.absolute().parent.is_dir():
        raise GecasmoError(f"--chart {path}: there is no such folder.")
