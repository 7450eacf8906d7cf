"""Models in parts are saved without being read as a whole, as a file and as a folder."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from stored_examples import parted

import gecasmo
from gecasmo.errors import SavedModelError
from gecasmo.forms.parted_table import PartedTable


@pytest.fixture(params=["file", "folder"])
def saved(request, split, tmp_path: Path) -> Path:
    path = tmp_path / "model.gecasmo"
    split.save(path, folder=request.param == "folder")
    return path


def parts_of(model) -> dict[str, PartedTable]:
    return {coin: s for coin, s in model.states_.items() if isinstance(s, PartedTable)}


def test_what_was_saved_is_loaded(saved, split, model, log, store, tmp_path):
    shutil.rmtree(tmp_path / "rows")  # the copy stands alone
    loaded = gecasmo.load(saved)
    assert set(parts_of(loaded)) == {"attraction", "satisfaction"}
    assert loaded.score(store) == pytest.approx(model.score(log), rel=1e-12)
    for coin, table in parts_of(loaded).items():
        assert table.summary() == split.states_[coin].summary()
        assert coin not in loaded.report_.counts
        whole, counts = table.whole()
        assert counts.sum() == pytest.approx(model.report_.counts[coin].sum(), rel=1e-12)
        assert len(whole.rows) == len(model.states()[coin].rows)
    assert loaded.report_.log_likelihood == model.report_.log_likelihood


def test_from_file_to_folder_and_back(split, tmp_path):
    split.save(tmp_path / "a")
    gecasmo.load(tmp_path / "a").save(tmp_path / "b", folder=True)
    gecasmo.load(tmp_path / "b").save(tmp_path / "c")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()


def test_a_model_in_memory_can_be_a_folder_too(model, log, tmp_path):
    model.save(tmp_path / "m", folder=True)
    assert gecasmo.load(tmp_path / "m").score(log) == model.score(log)
    model.save(tmp_path / "m", folder=True)  # replaces it
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_models_without_parts_have_the_old_format(model, split, tmp_path):
    versions = []
    for each in (model, split):
        each.save(tmp_path / "m")
        with zipfile.ZipFile(tmp_path / "m") as archive:
            versions.append(json.loads(archive.read("manifest.json"))["version"])
    assert versions == [1, 2]


def test_parts_that_are_there_already_stay(model, log, tmp_path):
    """As a cluster does: workers write parts into the folder, then the driver saves the rest."""
    folder = tmp_path / "big.gecasmo"
    twin = parted(model, folder, 4)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("part-*")}
    with pytest.raises(SavedModelError, match=r"there is no manifest.json in it"):
        gecasmo.load(folder)
    twin.save(folder, folder=True)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("part-*")} == before
    loaded = gecasmo.load(folder)
    np.testing.assert_allclose(loaded.score(log), model.score(log), rtol=1e-12)
    loaded.save(folder, folder=True)
    assert gecasmo.load(folder).score(log) == loaded.score(log)


def test_nothing_is_read_before_it_is_needed(saved, split):
    loaded = gecasmo.load(saved)
    damage(saved, "parted/0/part-00002.parquet")
    gecasmo.load(saved)
    table = loaded.states_["attraction"]
    table.part(1)
    with pytest.raises(SavedModelError, match=r"part-00002\.parquet.* is damaged|cannot be read"):
        table.part(2)
    with pytest.raises(SavedModelError):
        loaded.states()


def damage(path: Path, name: str) -> None:
    """Flip a bit in the middle of a member."""
    if path.is_dir():
        file, start = path / name, 0
        size = file.stat().st_size
    else:
        file = path
        with zipfile.ZipFile(path) as archive:
            about = archive.getinfo(name)
        start, size = about.header_offset + 30 + len(name), about.file_size
    content = bytearray(file.read_bytes())
    content[start + size // 2] ^= 4
    file.write_bytes(content)


def test_a_part_that_is_gone(split, tmp_path):
    split.save(tmp_path / "m", folder=True)
    (tmp_path / "m" / "parted/1/part-00003.parquet").unlink()
    with pytest.raises(SavedModelError, match=r"parted/1/part-00003\.parquet is not what was"):
        gecasmo.load(tmp_path / "m")


def test_a_damaged_part_is_not_copied(split, tmp_path):
    damage(tmp_path / "rows", "parted/0/part-00001.parquet")
    for folder in (False, True):
        with pytest.raises(SavedModelError, match=r"part-00001\.parquet is damaged"):
            split.save(tmp_path / "m", folder=folder)
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


def test_other_folders_are_left_alone(model, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"")
    with pytest.raises(SavedModelError, match="is not the folder of a saved model"):
        model.save(tmp_path / "photos", folder=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(SavedModelError, match="is not the folder of a saved model"):
        model.save(tmp_path / "file", folder=True)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "tables/../../secret", ""])
def test_no_name_leads_out_of_the_folder(model, tmp_path, name):
    (tmp_path / "secret").write_bytes(b"{}")
    folder = tmp_path / "m"
    model.save(folder, folder=True)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["sha256"][name] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(SavedModelError, match="is damaged"):
        gecasmo.load(folder)


def test_parts_of_another_model_are_refused(split, tmp_path):
    folder = tmp_path / "m"
    split.save(folder, folder=True)
    data = json.loads((folder / "model.json").read_bytes())
    data["coins"][0]["parted"][0]["name"] = "parted/1/part-00000.parquet"
    (folder / "model.json").write_text(json.dumps(data))
    with pytest.raises(SavedModelError, match=r"model\.json is not what was saved"):
        gecasmo.load(folder)
