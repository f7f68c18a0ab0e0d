"""The API for jobs: pipelines, functions and scripts, from their description to a handle on the submitted job."""
