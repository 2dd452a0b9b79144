"""Jobs: submit, look at, steer, follow."""
