"""Labels: one form, what is refused, and the option of a TaskManager."""

from __future__ import annotations

import pytest

from runtime.common.errors import InvalidInputError
from runtime.common.labels import LABELS_MAX, label_problems, sorted_labels
from runtime.config.loading import load
from runtime.config.options.taskmanager import LABELS


def test_equal_labels_have_one_form() -> None:
    assert sorted_labels({"zone": "b", "gpu": "a100"}) == ("gpu=a100", "zone=b")
    assert sorted_labels(["zone=b", "gpu=a100", "zone=b"]) == ("gpu=a100", "zone=b")


@pytest.mark.parametrize(
    "label", ["", "gpu", "gpu=", "=a", "-a=b", "a b=c", "a=b c", "a=b=c", "a" * 64 + "=b", "a=b\n"]
)
def test_what_is_no_label_is_refused(label: str) -> None:
    (problem,) = label_problems([label])
    assert problem.endswith("in the key also '/'")


def test_two_values_of_a_key_and_too_many_are_refused() -> None:
    assert list(label_problems(["a=1", "a=2"])) == ["the label a has two values: no TaskManager has both"]
    assert list(label_problems([f"k{number}=1" for number in range(LABELS_MAX)])) == []
    assert list(label_problems([f"k{number}=1" for number in range(LABELS_MAX + 1)])) != []


def labels(text: str) -> tuple[str, ...]:
    return load(None, environment={}, dynamic=[f"taskmanager.labels={text}"]).get(LABELS)


def test_a_task_manager_has_key_value_pairs() -> None:
    assert labels("zone:b, gpu:a100") == ("gpu=a100", "zone=b")
    assert labels("") == ()


@pytest.mark.parametrize("text", ["gpu", "gpu=a100", "gpu:a:b", "gpu:", "gpu:a,gpu:b"])
def test_a_mistyped_option_is_told(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"taskmanager\.labels"):
        labels(text)
