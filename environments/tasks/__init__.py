"""Tasks at a computer: those that ship, and makers of task folders."""
