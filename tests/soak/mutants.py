"""Read files that were changed at random, one after the other, as a process of its own.

    python mutants.py CORPUS SEED N OUT

Mutant number i of a corpus is always the same. Whatever it is, it ends with the answer of the file
that it was made of, with another log, or with a message of ours: another exception, a hang of ten
seconds, the death of the process, or damage that a checksum should have told is a failure. The
mutant that is at work is written to OUT before it is read, with what was found so far, so that
nothing is lost with a process that is killed.
"""

from __future__ import annotations

import faulthandler
import gzip
import json
import re
import shutil
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import zstandard

import gecasmo
from gecasmo import DBN, EM, ClickLog, Table, open_log, read_log
from gecasmo.errors import GecasmoError

HANG = 10  # seconds
FEW = EM(max_iter=6, tol=0)

# What people and programs write where something else is expected.
NASTY = [
    *(
        b"",
        b"\x00",
        b"\xff\xfe",
        b"nan",
        b"-1",
        b"0",
        b"1e400",
        b"99999999999999999999999",
        b"null",
    ),
    *(b'"', b"'", b",", b"\t", b"\n", b"\r\n", b"{", b"]", b"\\", "ä😀".encode(), b"1970-01-01"),
    *(b"true", b"[[[[[[[[", b"\x0b", b"\x1f\x8b", b"PAR1", b"\x28\xb5\x2f\xfd", b"ARROW1"),
]


BINARY = (b"PAR1", b"ARRO", b"PK\x03\x04")


# -- mutations ---------------------------------------------------------------------------------
def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """The same with one to four changes; of what is packed, most of them inside."""
    is_inside = random.random() < 0.7
    if is_inside and content.startswith(b"\x1f\x8b"):
        return gzip.compress(mutated(gzip.decompress(content), random), 1)
    if is_inside and content.startswith(b"\x28\xb5\x2f\xfd"):
        return zstandard.compress(mutated(zstandard.decompress(content), random))
    data = bytearray(content)
    words = list(re.finditer(rb"[\w.+-]+", content)) if content[:4] not in BINARY else []
    if words and random.random() < 0.7:  # which gets farther than a byte that makes no sense
        for word in sorted(random.choice(len(words), int(random.integers(1, 4))), reverse=True):
            first, last = words[word].span()
            others = NASTY if random.random() < 0.5 else [words[random.integers(len(words))][0]]
            data[first:last] = others[random.integers(len(others))]
        return bytes(data)
    for _ in range(int(random.integers(1, 5))):
        _change(data, random)
    return bytes(data)


def _change(data: bytearray, random: np.random.Generator) -> None:
    size = len(data)
    if not size:
        data += NASTY[random.integers(len(NASTY))]
        return
    first = int(random.integers(size))
    last = min(size, first + int(random.integers(1, 40)))
    match int(random.integers(9)):
        case 0 | 1:
            data[first] ^= 1 << int(random.integers(8))
        case 2:
            data[first] = int(random.integers(256))
        case 3:
            del data[first:last]
        case 4:
            data[first:first] = data[first:last]
        case 5:
            data[first:last] = bytes(last - first)
        case 6:
            data[first:last] = NASTY[random.integers(len(NASTY))]
        case 7:
            other = int(random.integers(size))
            data[first:last] = data[other : other + last - first]
        case _:
            del data[first:]


# -- what is done with them --------------------------------------------------------------------
def log_of(seed: int = 1, n: int = 30) -> pl.DataFrame:
    """Some clicks."""
    random = np.random.default_rng(seed)
    query = np.repeat(random.integers(0, 8, n), 3)
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n), 3),
            "query": query,
            "doc": np.tile(np.arange(3), n) + 3 * query,
            "rank": np.tile([1, 2, 3], n),
            "click": random.random(3 * n) < 0.4,
        }
    )


def model() -> DBN:
    """What fits and checkpoints are of."""
    fixed = Table(pseudo_counts=(1, 1))
    return DBN(attraction=fixed, satisfaction=fixed)


def read(path: Path) -> None:
    """A log; whatever is read is another log."""
    log = read_log(path)
    assert log.n_results == len(log.to_frame())


def ingest(path: Path) -> None:
    """A log that is stored, and asked."""
    target = path.with_name("stored.gclog")
    shutil.rmtree(target, ignore_errors=True)
    shutil.rmtree(target.with_name(f"{target.name}.part"), ignore_errors=True)
    log = ClickLog.ingest(path, target, partitions=2, progress=False)
    assert sum(part.n_results for part in log.partitions()) >= 0


def stored(path: Path) -> Any:
    """A stored log: the clicks that it has, and what a model says of it."""
    log = open_log(path)
    known = DBN.with_values(attraction=0.4, satisfaction=0.4, continuation=0.7)
    return known.score(log), [part.click.tolist() for part in log.partitions()]


def fit(path: Path) -> Any:
    """A saved fit: what it says of a log."""
    found = gecasmo.load(path)
    log = read_log(log_of(2))
    return (
        found.score(log),
        found.predict_clicks(log).tolist(),
        found.estimates("attraction").rows(),
    )


def checkpoint(path: Path) -> Any:
    """A fit that was cut short, and goes on."""
    log = open_log(path.with_name("whole.gclog"))
    found = model().fit(log, FEW, checkpoint=path, progress=False, threads=1)
    return [frame.sort(frame.columns).rows() for frame in found.parameters.values()]


USES: dict[str, Callable[[Path], Any]] = {
    "read": read,
    "ingest": ingest,
    "stored": stored,
    "fit": fit,
    "checkpoint": checkpoint,
}


def run(corpus: Path, seed: int, n: int, out: Path) -> None:
    """Read some mutants; how many ended how, and what failed, is written down."""
    names = sorted(path.relative_to(corpus) for path in corpus.glob("*/*"))
    ends: Counter[str] = Counter()
    failures: list[str] = []
    right: dict[Path, Any] = {}
    own = out.with_suffix(".files")
    for number in range(seed, seed + n):
        name = names[number % len(names)]
        use = USES[name.parts[0]]
        shutil.rmtree(own, ignore_errors=True)
        own.mkdir()
        if use is checkpoint:
            shutil.copytree(corpus / "stored" / "whole.gclog", own / "whole.gclog")
        if use not in (read, ingest) and name not in right:
            right[name] = use(_copied(corpus / name, own / "right"))
        changed = _copied(corpus / name, own / name.name)
        place = _mutate(changed, np.random.default_rng(number))
        at = f"mutant {number} of {name} ({place})"
        out.write_text(
            json.dumps({"next": number + 1, "at": at, "ends": ends, "failed": failures}),
            encoding="utf-8",
        )
        faulthandler.dump_traceback_later(HANG, exit=True)
        try:
            found = use(changed)
            ends["read"] += 1
            if name in right and found != right[name]:
                failures.append(f"{at}: another answer")
        except GecasmoError:
            ends["refused"] += 1
        except BaseException as error:
            failures.append(f"{at}: {type(error).__name__}: {error}"[:300])
        finally:
            faulthandler.cancel_dump_traceback_later()
    shutil.rmtree(own, ignore_errors=True)
    # Not by getrusage: there a process begins with the memory of the one that it was forked from.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024
    said = {"next": seed + n, "at": "", "ends": ends, "failed": failures, "peak": peak}
    out.write_text(json.dumps(said), encoding="utf-8")


def _copied(path: Path, target: Path) -> Path:
    if path.is_dir():
        shutil.copytree(path, target)
    else:
        shutil.copy(path, target)
    return target


def _mutate(path: Path, random: np.random.Generator) -> str:
    """Change a file, or one in a folder; which one that is."""
    files = [path]
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "lock")
    chosen = files[random.integers(len(files))]
    chosen.write_bytes(mutated(chosen.read_bytes(), random))
    return chosen.name


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder, begin, amount, file = sys.argv[1:]
    run(Path(folder), int(begin), int(amount), Path(file))
