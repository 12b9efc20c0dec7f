// Package statustext shows the status of a bridge and its replicas to people, as `bridge status` prints it: first
// whether everything is delivered, then the replicas, the sinks with their queues, the sources with problems, and the
// checkpoint.
package statustext
