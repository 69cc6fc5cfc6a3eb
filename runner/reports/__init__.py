"""What a run says: to the terminal, to GitHub, to JUnit readers. Everything here takes results and returns text."""
