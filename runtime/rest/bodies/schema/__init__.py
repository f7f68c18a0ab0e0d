"""The bodies of all answers as types: Flink's fields, and this cluster's beside them.

mypy compares them with the code that makes the bodies, pydantic makes /openapi.json of them, and tests compare answers.
Bodies themselves are plain dicts, which cost nothing more. Clients must expect more fields.
"""
