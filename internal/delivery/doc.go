// Package delivery sends the messages of a sink to its destination. A [Delivery] is a queue, in memory and on disk,
// and a drain, with the connection and the parked events. It can outlive the engine whose changes it delivers: what it
// asks of the engine is in [User].
package delivery
