"""The coordinator's process: studies in a queue, rounds to parties, records on disk, changes of the federation file.

It may import connection and kit, neither of the other two sides; operations may import it.
Read coordinator_process.py first, then study_runner.py.
"""
