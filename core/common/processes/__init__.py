"""Processes among each other: children that end with their parent, and locks that end with their holder."""
