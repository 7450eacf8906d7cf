"""What a fit has done so far, pass by pass, so that it can be gone on with after a kill.

A fit is a conversation: the driver asks, the parts answer. With the answers written down, the
driver can be run again from the start, and finds itself where it was without a single pass being
repeated.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from gecasmo.errors import CheckpointError
from gecasmo.estimation.parts.tasks import Answer, SharedCounts, Task
from gecasmo.estimation.steps import Lengths
from gecasmo.files import whole_file
from gecasmo.forms.priors import Priors


class Journal:
    """A folder with one file a pass."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.n_written = 0
        while self._path(self.n_written).exists():
            self.n_written += 1

    def read(self, number: int, task: Task) -> Answer:
        """The answer to a task that was asked before."""
        try:
            content = io.BytesIO(self._path(number).read_bytes())
            with np.load(content, allow_pickle=False) as arrays:
                words = json.loads(bytes(arrays["words"]))
                counts = {
                    int(coin): SharedCounts(arrays[f"counts{coin}"], size)
                    for coin, size in words["counts"].items()
                }
                extra = {name: arrays[f"extra.{name}"] for name in words["extra"]}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as problem:
            raise CheckpointError(
                f"{self._path(number)} is damaged ({problem}). Remove the folder of this fit, and "
                "fit again."
            ) from None
        if words["task"] != digest(task):
            raise CheckpointError(
                f"{self.folder.parent} holds a fit that went another way at pass {number}: another "
                "version of gecasmo or of a library may have made it. Remove it, and fit again."
            )
        sums = words["sums"]
        return Answer(
            sums[0], words["n_impossible"], sums[1], counts, sums[2], Lengths(*sums[3:]), extra
        )

    def write(self, task: Task, answer: Answer) -> None:
        """Note the answer to the next task."""
        words = {
            "task": digest(task),
            "sums": [
                answer.log_likelihood,
                answer.penalty,
                answer.squared_distance,
                *answer.lengths,
            ],
            "n_impossible": answer.n_impossible,
            "counts": {str(coin): own.n_rows for coin, own in answer.counts.items()},
            "extra": list(answer.extra),
        }
        arrays: dict[str, Any] = {"words": np.frombuffer(json.dumps(words).encode(), np.uint8)}
        arrays |= {f"counts{coin}": own.table for coin, own in answer.counts.items()}
        arrays |= {f"extra.{name}": np.asarray(v) for name, v in answer.extra.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        with whole_file(self._path(self.n_written), CheckpointError) as temporary:
            temporary.write_bytes(buffer.getvalue())
        self.n_written += 1

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"


def digest(task: Task) -> str:
    """A number for what is asked, whatever is to be forgotten on the way."""
    found = hashlib.blake2b(digest_size=16)
    found.update(repr((task.recipe, task.name, task.ahead, task.work)).encode())
    for number, weights in sorted(task.shared.items()):
        found.update(
            repr((number, weights.shape)).encode() + np.ascontiguousarray(weights).tobytes()
        )
    for number, prior in sorted(task.priors.items()):
        if isinstance(prior, Priors):
            found.update(repr((number, [one.name for one in prior.smooths])).encode())
            arrays = [prior.slopes, *(one.knots for one in prior.smooths)]
            arrays += [side for one in prior.effects for side in (one.mean, one.variance)]
            for array in arrays:
                found.update(np.ascontiguousarray(array).tobytes())
        else:
            found.update(repr((number, *prior)).encode())
    for name, value in sorted(task.extra.items()):
        found.update(name.encode())
        found.update(value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode())
    return found.hexdigest()
