"""Generalised linear models with variable selection across parties: VFL-GLM-VS (Section 4)."""
