"""Whether a day can be built again as it was: by the recorded code, from the recorded inputs, to
the same rows.
"""
