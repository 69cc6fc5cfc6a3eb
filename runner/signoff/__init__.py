"""From results to a decision: what a policy asks of a release, what was shown of it, and a bundle that proves it."""
