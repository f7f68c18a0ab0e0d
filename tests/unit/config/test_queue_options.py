"""Options of queues: the operator chooses their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.common.shares import QueueSettings
from runtime.config.loading import InvalidConfigurationError, load

PREFIX = "slotmanager.queue."


def test_they_are_read_from_nested_keys_too_and_shown(tmp_path: Path) -> None:
    text = "slotmanager:\n  queue:\n    etl:\n      weight: 3\n      min-slots: 4\n      namespaces: [team-a, team-b]\n"
    (tmp_path / "config.yaml").write_text(text)
    dynamic = [f"{PREFIX}root.sam@x.max-slots=2", f"{PREFIX}root.sam@x.max-running-jobs=1"]
    configuration = load(tmp_path, environment={}, dynamic=dynamic)
    assert configuration.queues == {
        "etl": QueueSettings(weight=3.0, min_slots=4, namespaces=("team-a", "team-b")),
        "root.sam@x": QueueSettings(max_slots=2, max_running_jobs=1),
    }
    assert dict(configuration.shown())[f"{PREFIX}etl.weight"] == "3"
    assert load(None, environment={}).queues == {}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["etl=3"], "expected slotmanager.queue.<name>.<option>"),
        (["etl.wait=3"], "one of the options weight, min-slots"),
        (["a b.weight=3"], "a name of letters"),
        ([f"{'a' * 128}.weight=3"], "a name of letters"),
        (["etl.weight=0"], "between 0.001 and 1000"),
        (["etl.weight=nan"], "between 0.001 and 1000"),
        (["etl.min-slots=-1"], "from 0 to 1000000"),
        (["etl.max-slots=0"], "from 1 to 1000000"),
        (["etl.max-running-jobs=x"], "from 1 to 1000000"),
        (["etl.namespaces=A B"], "is not a namespace"),
        (["default.namespaces=team-a"], "every job may wait in the queue default: remove it"),
        (["etl.min-slots=3", "etl.max-slots=2"], "etl.min-slots is 3, above max-slots, which is 2"),
        ([f"q{number}.weight=1" for number in range(1001)], "1001 queues have options, the limit is 1000"),
    ],
)
def test_one_that_cannot_be_meant_is_refused(settings: list[str], words: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=words):
        load(None, environment={}, dynamic=[PREFIX + one for one in settings])
