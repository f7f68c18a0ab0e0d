"""R41: a warning for storage and exchange directories that other users can read."""

from __future__ import annotations

from pathlib import Path

from runtime.config.layout import Layout
from runtime.config.loading import load
from runtime.entrypoint.open_directories import open_directories


def test_what_others_can_read_is_told(tmp_path: Path) -> None:
    storage, exchange = tmp_path / "storage", tmp_path / "exchange"
    layout = Layout(tmp_path, tmp_path / "conf", tmp_path / "run")
    dynamic = [f"high-availability.storageDir=file://{storage}", f"exchange.dir={exchange}"]
    configuration = load(None, environment={}, dynamic=dynamic, check=False)
    assert list(open_directories(configuration, layout)) == [], "they are made later"
    storage.mkdir(mode=0o755)
    storage.chmod(0o755)
    exchange.mkdir(mode=0o700)
    (told,) = open_directories(configuration, layout)
    assert f"{storage} (high-availability.storageDir, mode 0755)" in told
    exchange.chmod(0o711)
    assert len([*open_directories(configuration, layout)]) == 1, "slots of other users pass through it, and see nothing"
    exchange.chmod(0o770)
    assert len([*open_directories(configuration, layout)]) == 2


def test_remote_storage_and_the_run_directory_are_no_matter(tmp_path: Path) -> None:
    layout = Layout(tmp_path, tmp_path / "conf", tmp_path)
    (tmp_path / "exchange").mkdir(mode=0o755)
    dynamic = ["high-availability.storageDir=s3://bucket/x"]
    configuration = load(None, environment={}, dynamic=dynamic, check=False)
    assert list(open_directories(configuration, layout)) == []
