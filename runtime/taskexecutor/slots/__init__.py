"""Slots: the processes in which user code runs, and everything that happens in and directly around them.

Two sides that share only `wire`, `work` and `logs`. In the TaskManager: `pool` (what the TaskExecutor calls),
`slot_process`, `template`, `memory`, `outputs`. In the processes: `template_main` forks, `slot_main` waits for work,
`task_runner` runs it with `task_context`, `exchange`, `code` and `script`.
"""
