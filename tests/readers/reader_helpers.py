"""What the tests of the readers share."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogWarning
from gecasmo.logs import ClickLog, read_log

# A soak takes more examples of everything.
MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))

SAMPLES = Path(__file__).parent / "samples"

# A name of a file for every format, packed and not.
FILES = {
    "log.parquet": "table",
    "log.csv": "table",
    "log.tsv.gz": "table",
    "log.csv.zst": "table",
    "log.jsonl": "table",
    "log.ndjson.gz": "table",
    "log.json.zst": "table",
    "events.parquet": "events",
    "events.csv.gz": "events",
    "ubi.ndjson": "ubi",
    "ubi.ndjson.zst": "ubi",
    "yandex.tsv": "yandex",
    "yandex.txt.gz": "yandex",
    "clickmodels.tsv": "clickmodels",
    "clickmodels.tsv.zst": "clickmodels",
    "pyclickmodels.json.gz": "pyclickmodels",
    "baidu.parquet": "baidu",
}
CANNOT_HOLD_EMPTY_PAGES = (
    *("log.csv", "log.tsv.gz", "log.csv.zst"),
    *("events.parquet", "events.csv.gz"),
)


def pages(log: ClickLog, *signals: str) -> list[tuple[Any, list[tuple[Any, ...]]]]:
    """The query and the results by rank of each page: doc, rank, clicked, and other signals."""
    frame = log.to_frame()[log.order].select("doc", "rank", "click", *signals)
    queries = log.session_column("query").to_list() if log.has_query else [None] * len(log)
    bounds = zip(log.starts[:-1], log.starts[1:], strict=True)
    return [
        (query, [tuple(map(as_number, row)) for row in frame[int(a) : int(b)].rows()])
        for query, (a, b) in zip(queries, bounds, strict=True)
    ]


def as_number(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def read_noting(source: Any, **options: Any) -> tuple[ClickLog, dict[str, int]]:
    """Read a log, and return its notes; there is one warning if there are notes, else none."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log = read_log(source, **options)
    assert [warning.category for warning in caught] == [ClickLogWarning] * bool(log.notes)
    for note in log.notes:
        assert note.kind in str(caught[0].message) or note.what in str(caught[0].message)
        assert note.count > 0
        assert len(note.examples) <= 3
    assert len({note.kind for note in log.notes}) == len(log.notes)
    return log, {note.kind: note.count for note in log.notes}


def examples(log: ClickLog, kind: str) -> list[str]:
    """The examples of a note, without the folder."""
    (note,) = (note for note in log.notes if note.kind == kind)
    return [example.replace(f"{SAMPLES}/", "") for example in note.examples]
