"""The experiments behind `gecasmo paper` and `gecasmo gap`: simulate, fit, score, tell.

They use the package as anybody would, and nothing else of it uses them.
"""
