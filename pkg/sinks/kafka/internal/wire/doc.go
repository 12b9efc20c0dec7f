// Package wire has the connections to the brokers of a Kafka cluster: TCP, TLS, versions and SASL, one exchange at a
// time, and the questions about the cluster that more than one package asks. The producer, the reader and the check of
// [github.com/deltabridge/deltabridge/pkg/sinks/kafka] share it.
//
// The bytes are kafka-go's: its packages protocol, sasl and compress. What stands in the place of its Transport and
// Dialer is what they do not have, see ADR 25:
//
//   - The error of an exchange says whether the request was sent ([Sent]). Only then may a batch have been written.
//   - Each step of opening a connection has a time limit, and its failure is a [sinks.ConnectError] with a remedy.
//   - A connection is replaced before its SASL session ends (KIP-368), before the broker closes it as idle, and when
//     the files that it was opened with have changed. If that fails, the one that works stays.
//   - Metadata is read when the caller asks for it, of the topics that it names.
package wire
