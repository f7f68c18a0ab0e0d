"""R46: TLS is configured completely, and no option of it is without effect."""

from __future__ import annotations

import pytest

from runtime.config.loading import InvalidConfigurationError, load

INTERNAL = (
    "security.ssl.internal.enabled=true",
    "security.ssl.internal.cert=/c/internal.pem",
    "security.ssl.internal.key=/c/internal.pem",
    "security.ssl.internal.ca=/c/internal-ca.pem",
)
SPLIT = ("high-availability.type=etcd", "high-availability.etcd.embedded=true", "jobmanager.rpc.port=0")
EXTERNAL = (
    "high-availability.type=etcd",
    "high-availability.etcd.endpoints=etcd-1:2379",
    "high-availability.etcd.username=u",
    "high-availability.etcd.password=p",
)


def problems(*options: str) -> tuple[str, ...]:
    with pytest.raises(InvalidConfigurationError) as caught:
        load(None, environment={}, dynamic=[*options])
    return tuple(caught.value.problems)


def test_all_of_it_is_accepted() -> None:
    load(None, environment={}, dynamic=[*SPLIT, *INTERNAL])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_is_missing_is_named(number: int) -> None:
    given = [one for place, one in enumerate(INTERNAL) if place != number]
    (problem,) = problems(*SPLIT, *given)
    assert problem.startswith(f"security.ssl.internal.enabled: true needs {INTERNAL[number].partition('=')[0]}")


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_has_no_effect_is_refused(number: int) -> None:
    (problem,) = problems(*SPLIT, INTERNAL[number])
    assert "has no effect without security.ssl.internal.enabled: true" in problem


def test_paths_begin_at_the_root() -> None:
    (problem,) = problems(*SPLIT, *INTERNAL[:3], "security.ssl.internal.ca=certs/ca.pem")
    assert "certs/ca.pem has to be a path from /" in problem


def test_an_etcd_in_plain_text_is_refused_beside_encrypted_links() -> None:
    (problem,) = problems(*EXTERNAL, *INTERNAL)
    assert "high-availability.etcd.tls.ca" in problem
    load(None, environment={}, dynamic=[*EXTERNAL, *INTERNAL, "high-availability.etcd.tls.ca=/etcd-ca.pem"])
    load(None, environment={}, dynamic=[*EXTERNAL])
    open_etcd = (*EXTERNAL[:2], "high-availability.etcd.allow-unauthenticated=true")
    load(None, environment={}, dynamic=[*open_etcd, *INTERNAL])
