"""What a run will need, before it is queued: device memory, host memory, room on the disk, time. Pure, without torch."""
