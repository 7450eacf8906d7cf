"""Kernels that walk over rows of a coin: sums over the results of a log, and bases of priors."""

from __future__ import annotations

# mypy: ignore-errors


def add_by_row(starts, order, page_of, begins, codes, first_rows, is_by_page, values, weight, out):
    """`out[0, row]` gets the weight of all results of a row, `out[1, row]` times their values.

    Of each session `page_of` says which encoded page it is, and `begins` where its rows begin among
    `codes`; `order` has the places of results in the log, unless they stand there in order. A
    single value is that of all results.
    """
    is_given = len(values) > 1
    for session in range(len(starts) - 1):
        page = page_of[session]
        begin = starts[session]
        first = int(first_rows[page]) if len(first_rows) > 0 else 0
        for k in range(starts[session + 1] - begin):
            place = order[begin + k] if len(order) > 0 else begin + k
            code = codes[page] if is_by_page else codes[begins[page] + k]
            row = first + int(code)
            out[0, row] += weight[session]
            out[1, row] += weight[session] * (values[place] if is_given else values[0])


def note_by_row(starts, order, page_of, begins, codes, first_rows, is_by_page, values, out, differ):
    """`out[row]`, -1 before, gets the value at a result of the row; `differ[0]` counts results that
    have another one (see `add_by_row`)."""
    for session in range(len(starts) - 1):
        page = page_of[session]
        begin = starts[session]
        first = int(first_rows[page]) if len(first_rows) > 0 else 0
        for k in range(starts[session + 1] - begin):
            place = order[begin + k] if len(order) > 0 else begin + k
            code = codes[page] if is_by_page else codes[begins[page] + k]
            row = first + int(code)
            if out[row] < 0:
                out[row] = values[place]
            elif out[row] != values[place]:
                differ[0] += 1


def fill_ramps(x, knots, centre, factor, out, column):
    """For each x a ramp for each piece between knots, from 0 at its begin to 1 at its end, less its
    centre and times a factor, if there are such, into the columns of `out` after this one, which
    gets the mean of them."""
    n_pieces = len(knots) - 1
    for row in range(len(x)):
        times = factor[row] if len(factor) > 0 else 1.0
        total = 0.0
        for k in range(n_pieces):
            ramp = (x[row] - knots[k]) / (knots[k + 1] - knots[k])
            ramp = (min(max(ramp, 0.0), 1.0) - centre[k]) * times
            out[row, column + 1 + k] = ramp
            total += ramp
        out[row, column] = total / n_pieces
