"""What the workflows of GitHub Actions do, as commands: `.github/` stays thin, and everything here has tests."""
