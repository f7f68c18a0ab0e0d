"""The template process, from which slot processes are forked."""
