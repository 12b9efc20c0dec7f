// Package e2e tests the built binary as its users run it: against a real Kubernetes API server with RBAC, a real
// JetStream server and a real Apache Kafka, which are stopped, frozen and killed at bad moments.
//
// The judge of what must arrive is etcd itself: an object's resourceVersion is the etcd revision of its write, so
// each revision that etcd holds under a key must turn up at the broker. What the tests believe to have written
// plays no part.
package e2e
