"""Secrets come from files of the TaskManager; what is missing is a sentence, what is there is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.jobgraph.task_secrets import enter_task, task_secrets
from runtime.taskexecutor.credentials.secret_files import SECRET_BYTES_MAX, SecretError, SecretFiles


def test_values_are_the_files_without_the_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "PLAIN").write_text("abc")
    (tmp_path / "EDITED").write_text("first\nsecond\n")
    secrets = SecretFiles(str(tmp_path), "tm-1").read(("PLAIN", "EDITED"))
    assert secrets == {"PLAIN": "abc", "EDITED": "first\nsecond"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            None,
            r"there is no file .*/default/KEY, for this namespace alone, nor .*/KEY, for all: put it .* \(none is\)",
        ),
        (b"\xffsecret", "is not UTF-8 text"),
        (b"x" * (SECRET_BYTES_MAX + 1), "has more than 1048576 bytes"),
    ],
)
def test_a_secret_that_is_not_to_be_had(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "KEY").write_bytes(content)
    with pytest.raises(SecretError, match=r"'KEY'.*TaskManager tm-1.*taskmanager\.secrets\.directory.*" + words):
        SecretFiles(str(tmp_path), "tm-1").read(["KEY"])


@pytest.mark.parametrize("name", ["K" * 300, "KEY"])
def test_what_the_host_denies_is_a_sentence(tmp_path: Path, name: str) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(SecretError, match="cannot be read"):
        SecretFiles(str(tmp_path if name != "KEY" else loop), "tm-1").read([name])


def test_of_those_that_are_there_the_names_are_told(tmp_path: Path) -> None:
    (tmp_path / "DB_PASSWORD").write_text("hush")
    (tmp_path / "TOKEN").write_text("hush")
    with pytest.raises(SecretError, match=r"one that is there \(DB_PASSWORD, TOKEN\)$") as told:
        SecretFiles(str(tmp_path), "tm-1").read(["DB_PASSWROD"])
    assert "hush" not in str(told.value)


def test_a_directory_is_no_secret_and_says_nothing_of_other_namespaces(tmp_path: Path) -> None:
    (tmp_path / "team-b").mkdir()
    with pytest.raises(SecretError, match=r"a secret is a file: ask for one that is there \(none is\)"):
        SecretFiles(str(tmp_path), "tm-1").read(["team-b"], "team-a")


def test_a_namespace_has_its_own_and_those_for_all(tmp_path: Path) -> None:
    (tmp_path / "team-a").mkdir()
    for name, value in (("SHARED", "all"), ("KEY", "all"), ("team-a/KEY", "a"), ("team-a/ONLY", "only")):
        (tmp_path / name).write_text(value)
    secrets = SecretFiles(str(tmp_path), "tm-1")
    assert secrets.read(("SHARED", "KEY", "ONLY"), "team-a") == {"SHARED": "all", "KEY": "a", "ONLY": "only"}
    assert secrets.read(("SHARED", "KEY"), "team-b") == {"SHARED": "all", "KEY": "all"}
    for other in ("team-b", "", "default"):
        with pytest.raises(SecretError, match=r"'ONLY'.* one that is there \(KEY, SHARED\)"):
            secrets.read(["ONLY"], other)
    with pytest.raises(SecretError, match=r"\(KEY, ONLY, SHARED\)"):
        secrets.read(["OTHER"], "team-a")
    for unknown in ("?", "../team-a", "*"):
        with pytest.raises(SecretError, match="is not a namespace"):
            secrets.read(["KEY"], unknown)


def test_without_a_directory_there_are_none() -> None:
    assert SecretFiles("", "tm-1").read([]) == {}
    with pytest.raises(SecretError, match="that option is not set"):
        SecretFiles("", "tm-1").read(["KEY"])


def test_printing_secrets_shows_their_names() -> None:
    try:
        secrets = enter_task({"KEY": "value"})
        assert (secrets["KEY"], dict(secrets), len(secrets)) == ("value", {"KEY": "value"}, 1)
        assert task_secrets() is secrets
        assert repr(secrets) == str(secrets) == "TaskSecrets(KEY)"
        assert secrets.get("OTHER") is None
        with pytest.raises(KeyError, match="does not ask for the secret 'OTHER'"):
            secrets["OTHER"]
    finally:
        enter_task({})
