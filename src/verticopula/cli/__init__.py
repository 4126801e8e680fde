"""The commands: thin files that read options, call the library and show what happened.

It imports everything; nothing imports it.
Read app.py first, then run_command.py; study_inputs.py and screen_output.py are what commands share.
"""
