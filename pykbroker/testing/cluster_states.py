"""The states of a cluster: copies of the directories of nodes that stand still, put back when no node runs.

Responsible for what a state has. Not responsible for starting the nodes (cluster.py).
"""

from __future__ import annotations

from pykbroker.testing.client_time import Moved
from pykbroker.testing.cluster_layout import ClusterLayout
from pykbroker.testing.handed_out import newest_group_epoch
from pykbroker.testing.running_nodes import RunningNodes
from pykbroker.testing.saved_state import SavedState


def save_state(owner: object, layout: ClusterLayout, running: RunningNodes, moved: Moved) -> SavedState:
    """Let the nodes stand still, and copy their directories. `owner`: the cluster. `moved`: how its clock has moved.
    Raises RuntimeError if no node serves, or if a node is paused; OSError."""
    if running.paused:
        raise RuntimeError(f"node {running.paused[0]} is paused: resume it first, or kill it")
    if not running.serving():
        raise RuntimeError("no node of the cluster serves")
    with running.standing():
        serving = {node.config.node_id: node for node in running.serving()}
        path = layout.copy(serving)
        end_offset, leader = running.newest_image().offset + 1, running.controller()
        # The leader of the quorum has resigned when it starts again, and a voter that lags would not be elected.
        ends = {number: node.shared.quorum.log_end_offset for number, node in serving.items() if number != leader}
    stands = max(ends, key=ends.__getitem__, default=None)
    return SavedState(owner, path, end_offset, moved, tuple(sorted(serving)), stands)


def note_handed_out(layout: ClusterLayout, running: RunningNodes) -> None:
    """Note what clients may have seen of nodes that are about to end. It waits for no node."""
    epochs = [newest_group_epoch(node) for node in running.serving()]
    layout.handed_out.note(running.newest_image(), max(epochs, default=0))


def put_back(state: SavedState, owner: object, layout: ClusterLayout, running: RunningNodes) -> None:
    """Kill the nodes, and put the state in the place of their files. The nodes that start after that keep to the limits
    of what was handed out. Raises ValueError for a state of another cluster or one that was deleted; OSError. If there
    is no room for the copy, the nodes go on."""
    if state.owner is not owner or not state.exists:
        raise ValueError("this snapshot was deleted, or is of another cluster")
    staged = layout.stage(state.path)
    note_handed_out(layout, running)
    running.kill(running.running)
    layout.replace(staged)
    layout.restored, layout.stands = layout.handed_out.restored(state.end_offset), state.stands
