"""The lock timeouts of a whole Airflow's parts for its SQLite file, which has one writer at a time.

The scheduler and the triggerer end when they do not get the lock in time, by default within 5 s, and are not restarted.
The API server must not wait longer than that, since it may wait for a request to itself.
"""

from __future__ import annotations

import sys

CONNECT_ARGS = {"timeout": 5.0 if "api-server" in sys.argv else 60.0}
