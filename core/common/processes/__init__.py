"""Child processes, temporary folders, limits of control groups, and settings of the service's processes."""
