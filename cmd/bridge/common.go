package main

import (
	"context"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
)

// closeTimeout is the maximum time for closing the connections of a command.
const closeTimeout = 5 * time.Second

// closeDestination closes a destination's connections, even if ctx has ended.
func closeDestination(ctx context.Context, d *assemble.Destination) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	_ = d.Close(last) // an error on close does not change the result of the command
}
