"""The tests of the rooms, one file each."""
