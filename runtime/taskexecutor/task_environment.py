"""What the processes of user code get of the environment in which the TaskManager was started (R41).

A list of what passes, not of what does not: the environment of a cluster's start holds secrets in variables of unknown
names. What a job declares (`env`) is the job's, and passes as it is. Pure, but for `TaskEnvironment.of_this_process`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runtime.jobgraph.task_credentials import VARIABLE as CREDENTIALS_VARIABLE
from runtime.security.file_mask import UNCHANGED, task_umask

PASSED = (
    # the user and the machine
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TMPDIR", "TEMP", "TMP", "TERM",
    "LANG", "LANGUAGE", "LC_*", "TZ", "TZDIR", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_*",
    "VIRTUAL_ENV", "CONDA_*", "XDG_*",
    # what PySpark, its JVM and its file systems read
    "PYTHON*", "PYSPARK_*", "SPARK_*", "JAVA_*", "JDK_*", "_JAVA_OPTIONS", "SCALA_*",
    "HADOOP_*", "HDFS_*", "YARN_*", "HIVE_*", "KRB5*", "ARROW_*",
    # libraries that compute
    "OMP_*", "OPENBLAS_*", "MKL_*", "NUMEXPR_*", "CUDA_*", "NVIDIA_*",
    # the way out, and what to trust on it
    "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
    "http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL*", "AWS_CA_BUNDLE",
)  # fmt: skip
"""Names, and beginnings of names with `*`. No credentials of clouds: those of the cluster's storage are among them.

A proxy's address may hold a password: without it there would be no way out.
"""

_SECRET = re.compile(r"PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|(^|_)(API|ACCESS|PRIVATE|AUTH)_?KEY|_KEY$")
"""In names that only begin as one of PASSED does."""

OURS = "FLINKLIKE_"
"""Never passes: the cluster's settings, passwords among them, and where its files are. One is added (R51)."""


def passed_on(environment: Mapping[str, str], further: Iterable[str] = ()) -> dict[str, str]:
    """The variables that user code gets, by PASSED, and by what the operator names beside it, secrets too."""
    asked, known = _Names(further), _Names(PASSED)
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(OURS)
        and (name in asked.whole or name.startswith(asked.beginnings) or name in known.whole or known.may_begin(name))
    }


class _Names:
    """Names, and beginnings of names."""

    def __init__(self, patterns: Iterable[str]) -> None:
        listed = tuple(patterns)
        self.whole = frozenset(one for one in listed if not one.endswith("*"))
        self.beginnings = tuple(one[:-1] for one in listed if one.endswith("*"))

    def may_begin(self, name: str) -> bool:
        """Begins it so, and looks like no secret?"""
        return name.startswith(self.beginnings) and not _SECRET.search(name.upper())


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """What slot processes, Spark and its Python workers begin with.

    `umask`: UNCHANGED, or that of the start of this process.
    """

    variables: Mapping[str, str] = field(repr=False)
    umask: int = UNCHANGED

    def naming_credentials(self, directory: Path) -> TaskEnvironment:
        """A copy that also names the directory in which tasks find delegation tokens (R51)."""
        return TaskEnvironment({**self.variables, CREDENTIALS_VARIABLE: str(directory)}, self.umask)

    @classmethod
    def of_this_process(cls, further: Iterable[str] = ()) -> TaskEnvironment:
        """What this TaskManager passes on."""
        return cls(passed_on(os.environ, further), task_umask(os.environ))
