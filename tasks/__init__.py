"""What is asked: task specifications, problems and pure scorers. Imports nothing else of ours."""
