// Package embedded runs a nats-server with JetStream in the process, which other clients can connect to. It has no
// authentication.
//
// One process at a time uses the directory of its files: nats-server does not check that, and two would ruin them.
package embedded
