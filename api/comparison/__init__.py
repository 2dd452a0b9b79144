"""Several targets beside each other."""
