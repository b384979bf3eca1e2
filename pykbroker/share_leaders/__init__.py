"""The leaders of share partitions on a broker: one for each group and partition that members read (KIP-932).

`leader_table.py` is the entrance. It finds or makes the leader of a share partition, and it ends sessions.
`share_partition_leader.py` is one leader. It drives the pure machine of `share_partitions/`: it loads the state from
the persister, writes changes to it, ends locks at their time, and wakes the fetches that wait. `leader_states.py` has
the states of a leader, and the errors that clients get. `change_turns.py` works on large changes in several turns of
the loop, and `fetch_wakes.py` wakes fetches. `state_load.py` loads the state, `start_offsets.py` finds the first
offset of a group that has none, and `leader_configs.py` reads the configuration of a group. The fetches are in
`fetches/`.
"""
