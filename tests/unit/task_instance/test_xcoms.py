"""The size limit of XComs, and the error above it."""

from __future__ import annotations

import pickle

import pytest

from airflow_flinklike.exceptions import ResultTooLargeError
from airflow_flinklike.task_instance.xcoms import XCOM_LIMIT, check_size


@pytest.mark.parametrize(
    ("value", "limit"), [(None, 4), ("x" * (XCOM_LIMIT - 2), XCOM_LIMIT), ("x" * 1_000_000, None), ([1, 2], 6)]
)
def test_what_fits(value: object, limit: int | None) -> None:
    check_size("a" * 32, value, limit)


@pytest.mark.parametrize(("value", "limit", "size"), [(None, 3, 4), ("x" * XCOM_LIMIT, XCOM_LIMIT, XCOM_LIMIT + 2)])
def test_what_does_not_fit_says_what_to_do(value: object, limit: int, size: int) -> None:
    with pytest.raises(ResultTooLargeError, match=rf"has {size} bytes, and xcom_limit is {limit}: .*ctx.output_path"):
        check_size("a" * 32, value, limit)


def test_the_error_travels_between_processes() -> None:
    error = ResultTooLargeError("a" * 32, 5, 4)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
