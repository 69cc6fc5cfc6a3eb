"""Known issues, governed: entries of matrix.yaml made, fitted and taken out by what a run shows."""
