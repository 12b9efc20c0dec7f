// Command bridge streams every change in a Kubernetes cluster to NATS JetStream and Apache Kafka.
//
// Most commands have a file of their own, with the flags and the output of the command. Other packages do the work:
// internal/assemble builds the parts of the bridge from the configuration, and internal/engine runs them.
package main
