"""Single files that run inside sandboxes: stdlib only, mounted one by one, never imported there as a package."""
