"""Typed configuration: options with a type, a default and a sentence; one layered, validated Configuration.

Precedence: `-D key=value` > environment `FLINKLIKE__A__B` > `conf/config.yaml` > default. Whatever is wrong (unknown
key, bad value, options that contradict each other) is reported all at once, and the process does not start.
Only entry points read options; components get plain settings.
"""
