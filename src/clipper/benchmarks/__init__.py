"""Data sets, tasks and the measurements that others can repeat."""
