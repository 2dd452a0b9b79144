"""Jobs: submit, view, control, follow."""
