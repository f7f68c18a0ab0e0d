"""Files that the conf of a job names, as spark-submit reads them: like the option, which wins where both are given."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from airflow_flinklike.api.artifacts import FilePath, is_elsewhere, listed
from runtime.common.spark_conf import ARCHIVES, FILES, PY_FILES

logger = logging.getLogger(__name__)


class FilesOfConf:
    """`conf` becomes the conf without them. Spark itself reads URLs in the conf of a Java application (`is_jar`)."""

    def __init__(self, conf: Mapping[str, str], *, is_jar: bool) -> None:
        self.conf = dict(conf)
        self._is_jar = is_jar

    def py_files(self, given: Iterable[FilePath]) -> Iterable[FilePath]:
        """The files of the option, or of the conf where there is none; so it is below."""
        return self._of(PY_FILES, given, keeps_urls=False)

    def files(self, given: Iterable[FilePath]) -> Iterable[FilePath]:
        """Files for the working directory."""
        return self._of(FILES, given, keeps_urls=self._is_jar)

    def archives(self, given: Iterable[FilePath]) -> Iterable[FilePath]:
        """Archives that are unpacked there."""
        return self._of(ARCHIVES, given, keeps_urls=self._is_jar)

    def _of(self, key: str, given: Iterable[FilePath], *, keeps_urls: bool) -> Iterable[FilePath]:
        named = [str(one) for one in listed(self.conf.pop(key, ""))]
        if urls := [one for one in named if keeps_urls and is_elsewhere(one)]:
            self.conf[key] = ",".join(urls)
        own: list[FilePath] = [one for one in named if one not in urls]
        chosen = listed(given)
        if own and chosen:
            logger.warning("%s is not used: as under spark-submit, the option of the job counts alone", key)
        return chosen or own
