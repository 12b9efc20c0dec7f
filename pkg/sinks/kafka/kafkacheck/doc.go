// Package kafkacheck tries step by step what the Kafka sink depends on, and changes nothing: the files, the way to each
// broker, what the client may do, and whether the topics keep what the bridge promises.
package kafkacheck
