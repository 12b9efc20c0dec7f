// Command bridge streams every change of a Kubernetes cluster to NATS JetStream and Apache Kafka.
//
// Each command has a file with its flags and its output. The work is done by other packages: internal/assemble builds
// the parts of the bridge from the configuration, and internal/engine runs them.
package main
