"""What users call: Synthesizer and VerticalGLM, in the manner of scikit-learn.

It may import simulate and lower rooms; audits, network and commands may import it.
Read synthesizer.py first.
"""
