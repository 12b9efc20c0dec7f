// Package kafkaread reads topics back, without a consumer group: for bridge tail ([Read]), and for the register of
// cluster names ([Register]), which is a topic that it also writes to.
//
// It fetches on the connections of internal/wire, one partition after the other, and decodes with kafka-go. kafka-go's
// Conn and Reader do not work here: they panic on what compaction leaves of batches, and a Reader waits for a record,
// so that it can't tell that a partition has been read to its end. See ADR 25.
package kafkaread
