"""State of a module that one cell changes and the next must not see changed."""

seen = []
