"""What `make bench` measures: each module here or folder is one bench, its figures go to build/bench/."""
