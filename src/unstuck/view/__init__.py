"""What people look at: report, dashboard, terminal."""
