// Package wire manages the connections to the brokers of a Kafka cluster: TCP, TLS, version negotiation, SASL, and one
// exchange at a time. It also implements the requests about the cluster that several packages use, and the record
// batches of idempotent producers. The producer, the reader and the check of
// [github.com/deltabridge/deltabridge/pkg/sinks/kafka] share this package.
//
// kafka-go's packages protocol, sasl and compress encode and decode the bytes. This package replaces kafka-go's
// Transport and Dialer, which lack the following features (see ADR 25):
//
//   - The error of an exchange reports whether the request was sent ([Sent]). A batch can have been written only if its
//     request was sent.
//   - Every step of opening a connection has a time limit. If a step fails, the error is a [sinks.ConnectError] with a
//     remedy.
//   - The client replaces a connection before its SASL session expires (KIP-368), before the broker closes it as idle,
//     and when the TLS or SASL files have changed. If the new files do not work, the client keeps the working
//     connection.
//   - OAUTHBEARER, with tokens from a file or from a token endpoint.
//   - The client reads metadata only on request, and only of the requested topics.
package wire
