"""What can be said of a model or a machine: what compiles, how much work it is, how fast it goes.

A command or a tool imports what it needs: `report.check`, `report.flops`, `report.peak`.
"""
