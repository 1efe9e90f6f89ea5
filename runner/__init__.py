"""What happened: one run from its configuration to its report, all of it in one journal."""
