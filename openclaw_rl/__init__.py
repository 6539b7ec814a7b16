"""The rooms of the root under one import name: each entry links to the folder of that name."""
