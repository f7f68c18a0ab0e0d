"""Delegation tokens in the Hadoop conf of sessions: values that are called `hadoop_conf.<key>` (R51).

The Spark host reads them from the files that tasks read.
"""

from __future__ import annotations

from collections.abc import Mapping

from runtime.taskexecutor.credentials.token_values import TokenValues

_PREFIX = "hadoop_conf."


def hadoop_credentials(environment: Mapping[str, str]) -> TokenValues:
    """Key -> value. `environment` names where tasks find theirs."""
    return TokenValues.of_environment(environment, _PREFIX)
