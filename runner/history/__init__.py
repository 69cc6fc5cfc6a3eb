"""What became of each cell over time: an index of run directories, and the questions that it answers."""
