"""The cluster runtime: JobManager and TaskManager processes and everything below them.

The layers, top down, are listed in `.importlinter`; a layer imports only what is below it, and siblings
know each other only through `runtime.gateways`.
"""
