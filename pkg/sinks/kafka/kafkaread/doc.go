// Package kafkaread reads topics back, without a consumer group: for bridge tail ([Read]), and for the register of
// cluster names ([Register]), which is a topic that it also writes to.
//
// It fetches on the connections of internal/wire, all partitions of a broker in one request, and decodes with
// kafka-go. kafka-go's Reader does not do: it waits for a record, and so can't tell that a partition has been read to
// its end where compaction has removed the last ones; and it reads one partition on a connection that it opens itself.
package kafkaread
