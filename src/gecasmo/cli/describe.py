"""`gecasmo describe MODEL`: the program, coins and automaton of a model."""

from __future__ import annotations

from gecasmo.cli.arguments import ModelArgument
from gecasmo.cli.bundles import bundled
from gecasmo.cli.output import Output
from gecasmo.cli.streams import write_result


@bundled
def describe(model: ModelArgument, output: Output) -> None:
    """Show a model: its program, its coins and its automaton.

    [bold]Examples[/bold]

    [cyan]gecasmo describe DBN[/cyan]

    [cyan]gecasmo describe my_models.py:Patient[/cyan]
    """
    from gecasmo.cli.finding import find_model

    found = find_model(model)
    data = {
        "model": found.name,
        "what a user does": (type(found).__doc__ or "").split("\n")[0],
        "coins": [
            {"coin": coin, "key": list(found.keys[coin]), "form": repr(form)}
            for coin, form in found.forms.items()
        ],
        "relevance": list(found.relevance),
        "states": found.automaton.n_states,
        "program": found.program,
    }
    if output.json:
        output.show(data)
    else:
        write_result(str(found))
