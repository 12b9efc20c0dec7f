// Package embedded runs a nats-server with JetStream in the bridge process. Other clients can connect to it, without
// authentication.
//
// Only one process at a time may use the store directory. nats-server does not check that, and two processes would
// destroy the files, so this package locks the directory.
package embedded
