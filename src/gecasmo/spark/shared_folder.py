"""The folder that the executors of a fit have in common, in which its state is between passes.

Executors make it, write to it and remove it; the driver only knows its name. So it may be on a
storage that nobody but executors reaches.
"""

from __future__ import annotations

import importlib
import tempfile
import uuid
from typing import Any

from gecasmo.spark.session import SparkError

_SETTING = "spark.checkpoint.dir"


def folder_for(spark: Any, given: Any, model_folder: Any) -> str:
    """Choose the name of a new folder for the state of a fit.

    Parameters
    ----------
    spark : the session
    given : where the user wants it
    model_folder : where the fitted model is to be written, if that is in a folder
    """
    own = f"gecasmo-{uuid.uuid4().hex}"
    if given is not None:
        return f"{str(given).rstrip('/')}/{own}"
    if model_folder is not None:  # which executors reach, and which is new
        return f"{model_folder}/.{own}"
    known = spark.conf.get(_SETTING, None)
    if known:
        return f"{known.rstrip('/')}/{own}"
    if spark.conf.get("spark.master", "").startswith("local"):
        return f"{tempfile.gettempdir()}/{own}"
    raise SparkError(
        "Between passes the state of a fit is in a folder that all executors reach, and none is "
        'known. Name one, such as scratch="/shared/tmp" or scratch="s3://bucket/tmp".'
    )


class SharedFolder:
    """Files in a folder that is named by a path, or by an address such as s3://bucket/folder.

    A file is there as a whole or not at all, and may be written again with the same content: Spark
    runs a task again whose executor was lost, and sometimes two at once.
    """

    def __init__(self, address: str) -> None:
        files: Any = importlib.import_module("pyarrow.fs")
        self.address = address
        try:
            self._files, self._root = files.FileSystem.from_uri(address)
        except (ValueError, OSError) as problem:
            raise SparkError(
                f"scratch={address!r} is neither the full path of a folder nor an address that "
                f"PyArrow knows: {problem}"
            ) from None

    def write(self, name: str, data: bytes) -> None:
        """Write a file; the folders above it are made."""
        path = f"{self._root}/{name}"
        own = f"{path}-{uuid.uuid4().hex}"
        try:
            self._files.create_dir(path.rpartition("/")[0], recursive=True)
            with self._files.open_output_stream(own) as file:
                file.write(data)
            self._files.move(own, path)
        except OSError as problem:
            raise SparkError(f"{self.address}/{name} cannot be written: {problem}") from None

    def read(self, name: str) -> bytearray:
        """Read a file, into bytes that may be written to."""
        try:
            with self._files.open_input_file(f"{self._root}/{name}") as file:
                data = bytearray(file.size())
                n_bytes = file.readinto(data)
        except FileNotFoundError:
            raise SparkError(
                f"An executor does not find {self.address}/{name}, which another one has written. "
                "The state of a fit has to be in a folder that all executors have in common: name "
                "one with scratch=."
            ) from None
        if n_bytes != len(data):
            raise SparkError(f"{self.address}/{name} was cut short while it was read.")
        return data

    def remove(self, name: str = "") -> None:
        """Remove a file, or without a name the folder, if it is there."""
        try:
            if name:
                self._files.delete_file(f"{self._root}/{name}")
            else:
                self._files.delete_dir(self._root)
        except FileNotFoundError:
            pass
