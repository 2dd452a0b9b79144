"""Devices and enrolment tokens."""
