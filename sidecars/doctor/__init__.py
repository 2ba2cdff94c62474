"""The role `doctor`: looks at a cluster once, and reports what is wrong and what to do. Changes
nothing.
"""
