"""A commit's plan is refused before anything is visible where it cannot be carried out."""

from __future__ import annotations

import pytest

from runtime.common.errors import InvalidInputError
from runtime.taskexecutor.storage.core.output_plan import Present, make_plan


def test_a_mode_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="out: no such output mode: 'replace'"):
        make_plan("out", "replace", {}, Present({}))
