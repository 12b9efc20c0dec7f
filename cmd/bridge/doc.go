// Command bridge streams every change in a Kubernetes cluster to NATS JetStream and Apache Kafka.
//
// Each command has a file that contains the flags and the output of the command. Other packages do the work:
// internal/assemble builds the parts of the bridge from the configuration, and internal/engine runs them.
package main
