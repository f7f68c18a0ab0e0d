"""No test of properties may depend on the speed of the machine: hypothesis counts examples, not seconds."""

from hypothesis import HealthCheck, settings

settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")
