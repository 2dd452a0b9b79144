"""Trainings: submit, view, control, follow, download."""
