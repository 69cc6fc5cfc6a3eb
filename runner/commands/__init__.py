"""The commands of `runner`, by topic: each module adds its own to the application with `add_to`."""
