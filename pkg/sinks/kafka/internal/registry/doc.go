// Package registry registers the schema of events in a schema registry.
//
// The registry has the API of the Confluent Schema Registry. The schema of the values in a topic has the subject
// <topic>-value, which is the topic name strategy of Confluent's serializers. The registry returns the id of the
// schema, which each record contains.
//
// Every request is a new connection with the current files, because there are only a few requests for each topic.
// Failures are [sinks.ConnectError].
package registry
