"""This process as what runs code: its linker, and its team of threads."""

from __future__ import annotations

from alpenglow.machines.api import Artifact, Linked
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.team import Team, own_team


class ThisProcess:
    """Runs what is object code for the processor here (`machines.api.HostDevice`)."""

    def __init__(self) -> None:
        team = Team.shared()
        # Bound once: short calls count every step.
        self.run = team.run
        self.run_with_jumps = team.run_with_jumps
        self.own_team = own_team

    def install(self, artifact: Artifact) -> Linked:
        return Code.install(list(artifact.objects.values()), list(artifact.objects))
