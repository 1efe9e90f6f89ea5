"""What it scored: a process of its own. Others know only its client and its protocol."""
