package checkpoint

import "time"

const (
	lockName     = "checkpoint.lock" // in the folder of the checkpoint
	lockPatience = 1500 * time.Millisecond
	lockPoll     = 50 * time.Millisecond
)
