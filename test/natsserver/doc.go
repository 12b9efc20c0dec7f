// Package natsserver starts the nats-server of go.mod, or the program in DELTABRIDGE_TEST_NATS_SERVER, for tests.
package natsserver
