// Package kafkaread reads topics without a consumer group, for bridge tail ([Read]) and for the register of cluster
// names ([Names]). The register is a topic that this package also writes to.
//
// The package fetches over the connections of internal/wire, one partition after another, and decodes records with
// kafka-go. It cannot use kafka-go's Conn and Reader, because both panic on compacted batches. In addition, a Reader
// waits for the next record, so it cannot report that it has reached the end of a partition. See ADR 25.
package kafkaread
