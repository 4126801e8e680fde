"""What users call: Synthesizer and VerticalGLM, in the manner of scikit-learn.

It imports simulate and what stands below; audits, network and commands may import it.
Read synthesizer.py first.
"""
