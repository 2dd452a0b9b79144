"""What agents say: enrolment, leases, reports."""
