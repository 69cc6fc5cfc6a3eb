"""What starts workers: on this machine, in containers, or scripted for tests, all behind one Protocol."""
