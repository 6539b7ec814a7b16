"""Dialogues in which the policy acts: at a computer (`bash`, `edit`) and on a page (`click`, `fill`).

They are a cold start for learning from verdicts: about 40 % of the demonstrations are right, so that the policy's
attempts at a task differ, and their verdicts decide. Wrong ones are wrong in their decisions, never in what they copy.
"""
