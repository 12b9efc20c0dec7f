// Package natsconn connects to the servers of a NATS cluster, and says why it can't.
//
// An [Access] has all that it takes: addresses, credentials and certificates, whose files are read again at each
// connection. A [Client] is a connection that lasts: it reconnects forever, as soon as a server accepts connections,
// and it buffers nothing while it is away. An [Attempt] is one connection to one server, which reports each step on the
// way; a Client that can't connect makes one to each server to find out why.
//
// Every failure of a connection is a [sinks.ConnectError] that names the step, the address and the key of the
// configuration.
package natsconn
