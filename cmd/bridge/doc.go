// Command bridge streams every change of a Kubernetes cluster to NATS JetStream and Apache Kafka.
//
// Each command has a file: its flags, and what it prints. What it does is in the packages that it calls: internal/assemble makes parts of the
// configuration, internal/engine runs them.
package main
