"""Configuration: the typed settings of one process, as `runtime.config.loading` has read and checked them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from runtime.common.masking import MASK, masked
from runtime.common.shares import QueueSettings
from runtime.config import profile_options, queue_options
from runtime.config import token_provider_options as providers
from runtime.config.catalog import SPARK_PREFIX, all_options
from runtime.config.option import ConfigOption, render

T = TypeVar("T")


class Configuration:
    """Immutable typed settings of one process. Unset options have their default."""

    def __init__(
        self,
        values: Mapping[str, Any],
        spark_conf: Mapping[str, str],
        token_providers: Mapping[str, str] | None = None,
        queues: Mapping[str, str] | None = None,
        profiles: Mapping[str, str] | None = None,
    ) -> None:
        self._values = dict(values)
        self._spark_conf = dict(spark_conf)
        self._token_providers = dict(token_providers or {})
        self._queues = dict(queues or {})
        self._profiles = dict(profiles or {})

    def get(self, option: ConfigOption[T]) -> T:
        """The value of an option, or its default."""
        return cast("T", self._values.get(option.key, option.default))

    def has(self, option: ConfigOption[Any]) -> bool:
        """True when the option is set, by a file, the environment or -D."""
        return option.key in self._values

    @property
    def spark_conf(self) -> Mapping[str, str]:
        """The `spark.*` keys, as written."""
        return self._spark_conf

    @property
    def token_providers(self) -> Mapping[str, providers.ProviderOptions]:
        """The enabled providers of delegation tokens, by name."""
        return providers.enabled_providers(self._token_providers)

    @property
    def queues(self) -> Mapping[str, QueueSettings]:
        """The queues that have options, by name (D-128)."""
        return queue_options.queues_of(self._queues)

    @property
    def profiles(self) -> Mapping[str, Mapping[str, str]]:
        """What the profiles of TaskManagers change, as written, by name (D-141)."""
        return profile_options.profiles_of(self._profiles)

    def of_profile(self, name: str) -> Configuration:
        """The configuration of TaskManagers with a profile."""
        changed = self.profiles[name]
        spark_conf = {key: value for key, value in changed.items() if key.startswith(SPARK_PREFIX)}
        return Configuration(
            {**self._values, **profile_options.parsed(changed)},
            {**self._spark_conf, **spark_conf},
            self._token_providers,
            self._queues,
        )

    def shown(self) -> list[tuple[str, str]]:
        """The settings that are set, for REST: secrets are masked."""
        shown = {key: MASK if all_options()[key].is_secret else render(value) for key, value in self._values.items()}
        shown |= {key: masked(key, value) for key, value in self._spark_conf.items()}
        # Any option of a provider may be a password, whatever its name is.
        shown |= dict.fromkeys(self._token_providers, MASK)
        shown |= self._queues
        shown |= {key: masked(key, value) for key, value in self._profiles.items()}
        return sorted(shown.items())
