"""What people see: report, dashboard, terminal."""
