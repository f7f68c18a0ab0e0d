"""docs/architecture.md shows the components as the sources have them."""

from __future__ import annotations

import re

from tests.kit.architecture_picture import PICTURE, ROOT, folders, imports, layers, picture, without_implied


def test_the_picture_is_fresh() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), "run python -m tests.kit.architecture_picture"


def test_the_picture_shows_every_folder() -> None:
    assert sorted(folders()) == sorted(name for row in layers() for name in row)


def test_arrows_lead_downwards() -> None:
    rows = {name: number for number, row in enumerate(layers()) for name in row}
    assert not [(one, other) for one, targets in imports().items() for other in targets if rows[one] >= rows[other]]


def test_an_arrow_that_others_imply_is_left_out() -> None:
    edges = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset("")}
    assert without_implied(edges) == {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("")}


def test_every_component_is_explained() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| `([\w/]+)` \|", page, re.MULTILINE)) == sorted(
        name.replace(".", "/") for name in folders()
    )
