"""The commands of the `edgefront` program. Modules here import heavy packages only inside their functions."""
