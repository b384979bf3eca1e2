"""KRaft as a value: messages and ticks in, one `Ready` out. See raft/README.md."""
