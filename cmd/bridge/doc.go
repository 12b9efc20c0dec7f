// Command bridge streams every change of a Kubernetes cluster to NATS JetStream and Apache Kafka.
//
// Its package is the composition: it builds the parts in the order in which the data flows (informers, filters,
// listeners, queues, drains, sinks) and owns the life of the process. Nothing else knows all the parts.
//
//	main.go       commands, flags, exit codes
//	run.go        the command run: signals, and what is printed for people
//	bridge.go     Bridge: the stages of start and stop
//	pipeline.go   pipeline: one sink with its filter, encoder, queue and drain
//	listener.go   listener: the handler that joins one informer to one pipeline
//	watch.go      the configuration's `watch:` as an informer.Set
//	sinks.go      the configuration's sinks as sinks.Sink
//	metrics.go    what /metrics shows
//	http.go       /metrics, /healthz, /readyz
package main
