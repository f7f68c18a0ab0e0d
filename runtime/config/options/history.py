"""Options of the history: what JobManagers write of jobs that have ended, and the server that shows it."""

from __future__ import annotations

from runtime.config.option import (
    ConfigOption,
    duration_option,
    host_option,
    int_option,
    parse_some,
    size_option,
    string_option,
)

ARCHIVE_DIR = string_option(
    "jobmanager.archive.fs.dir",
    "",
    "Directory URL (local path or any fsspec URL) into which the leading JobManager writes the history of jobs that "
    "have ended, which outlives what REST lists. A history server reads it.",
    default_text="history in high-availability.storageDir",
)
ARCHIVE_MAX_SIZE = size_option(
    "jobmanager.archive.fs.max-size",
    "5 gb",
    "Total size of the history of this cluster; above it the oldest files are deleted. 0 writes none, and deletes what "
    "is there.",
    low="0 kb",
)
HISTORY_DIRS: ConfigOption[tuple[str, ...]] = ConfigOption(
    "historyserver.archive.fs.dir",
    parse_some("the URL of one directory at least"),
    (),
    "Directory URLs that the history server reads: those of jobmanager.archive.fs.dir or of "
    "high-availability.storageDir, of any clusters. Of two jobs with one id that of the first directory is shown.",
    "List",
    "jobmanager.archive.fs.dir",
)
HISTORY_REFRESH = duration_option(
    "historyserver.archive.fs.refresh-interval",
    "10 s",
    "How often the history server looks for jobs that are new.",
    low="100 ms",
)
HISTORY_JOBS_MAX = int_option(
    "historyserver.archive.retained-jobs",
    100_000,
    "Jobs that the history server shows at most, of each directory those that ended last; directories with many share "
    "it evenly. Each job takes about 1 kb of its memory. It deletes no file.",
    high=2_000_000,
)
HISTORY_ADDRESS = host_option("historyserver.web.address", "127.0.0.1", "Interface that the history server listens on.")
HISTORY_PORT = int_option(
    "historyserver.web.port", 8082, "Port of the history server; 0 picks a free one.", low=0, high=65535
)
