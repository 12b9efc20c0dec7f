// Package natscheck checks whether a JetStream stream and its servers meet the requirements of a sink. It is used by
// the sink when it connects, and by the diagnostic commands. It changes nothing.
package natscheck
