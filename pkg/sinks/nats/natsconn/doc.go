// Package natsconn connects to the servers of a NATS cluster and explains failed connections.
//
// An [Access] contains all connection settings: addresses, credentials and certificates. Their files are read again for
// every connection. A [Client] is a long-lived connection. It connects in the background as soon as a server accepts
// connections, never gives up, and buffers nothing while it is disconnected. An [Attempt] is one connection to one
// server, with a report about each step. If a Client can't connect, it makes an Attempt at every server to find the
// cause.
//
// Every connection failure is a [sinks.ConnectError] with the step, the address and the configuration key.
package natsconn
