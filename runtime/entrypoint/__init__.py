"""The processes of a cluster: how each is put together from options and components, started and stopped.

`process` is the frame of every process. `<process>_options` maps options to the settings of its components, and
`process_options` those that all processes have. `control` is the code behind the scripts in bin/.
"""
