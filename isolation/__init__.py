"""Where untrusted code may run, and which of its text may be shown. Imports nothing else of ours."""
