package natscheck

import (
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// RepeatPull returns options for [jetstream.Consumer.Messages] with which messages are requested again if the server
// has sent neither a message nor a heartbeat for a second. A server of a cluster may not know a consumer that was just
// created on another server. It then answers that the request has no responders, which nats.go ignores.
func RepeatPull(more ...jetstream.PullMessagesOpt) []jetstream.PullMessagesOpt {
	const silence = time.Second // twice the interval of heartbeats
	return append(more, jetstream.PullHeartbeat(silence/2), jetstream.WithMessagesErrOnMissingHeartbeat(false))
}
