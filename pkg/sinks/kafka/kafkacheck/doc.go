// Package kafkacheck checks the prerequisites of the Kafka sink step by step, without changing anything: the files, the
// connection to each broker, the permissions of the client, and the settings of the topics.
package kafkacheck
