"""Endpoints for agents: enrolment, leases, reports."""
