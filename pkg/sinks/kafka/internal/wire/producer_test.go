package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// fenced begins as a new process does: it returns a producer whose marker is in the partition.
func fenced(t *testing.T, p *Partition, c *Client, txn *Transactions, own Producer) (producer Producer) {
	t.Helper()
	waitUntil(t, func() (ok bool) {
		var err error
		producer, err = txn.Init(t.Context(), own)
		if err != nil && !errors.Is(err, kafkago.ConcurrentTransactions) && !errors.Is(err, kafkago.GroupLoadInProgress) &&
			!errors.Is(err, kafkago.GroupCoordinatorNotAvailable) && !errors.Is(err, kafkago.NotCoordinatorForGroup) {
			t.Fatal(err)
		}
		return err == nil
	})
	mark(t, p, c, txn, producer)
	return producer
}

// mark writes an empty transaction and waits for another marker.
func mark(t *testing.T, p *Partition, c *Client, txn *Transactions, producer Producer) {
	t.Helper()
	before := markers(t, p, c)[producer]
	waitUntil(t, func() bool {
		err := txn.Add(t.Context(), producer, p.Topic, p.ID)
		if err != nil && !errors.Is(err, kafkago.ConcurrentTransactions) {
			t.Fatal(err)
		}
		return err == nil
	})
	if err := txn.End(t.Context(), producer); err != nil {
		t.Fatal(err)
	}
	waitUntil(t, func() bool { return markers(t, p, c)[producer] > before })
}

// markers returns how many markers of each producer the partition contains.
func markers(t *testing.T, p *Partition, c *Client) map[Producer]int {
	t.Helper()
	found, err := p.Fetch(t.Context(), c, 0, 1<<20, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	n := make(map[Producer]int)
	if stream, ok := found.RecordSet.Records.(*protocol.RecordStream); ok {
		for _, batch := range stream.Records {
			if control, ok := batch.(*protocol.ControlBatch); ok {
				n[Producer{control.ProducerID, control.ProducerEpoch}]++
			}
		}
	}
	return n
}

// write writes a batch with one record and returns the error code.
func write(t *testing.T, p *Partition, c *Client, producer Producer, sequence int32) kafkago.Error {
	t.Helper()
	var set bytes.Buffer
	records := protocol.RecordSet{
		Version: 2,
		Records: protocol.NewRecordReader(protocol.Record{Time: time.Now(), Value: protocol.NewBytes([]byte("x"))}),
	}
	if _, err := records.WriteTo(&set); err != nil {
		t.Fatal(err)
	}
	setProducer(set.Bytes(), producer, sequence)
	msg, err := p.Send(t.Context(), c, &rawproduce.Request{
		Acks: -1, Timeout: 5000, Topics: []rawproduce.RequestTopic{{
			Topic: p.Topic, Partitions: []rawproduce.RequestPartition{{
				Partition: p.ID, RecordSet: protocol.RawRecordSet{Reader: &set},
			}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return kafkago.Error(msg.(*produce.Response).Topics[0].Partitions[0].ErrorCode)
}

// setProducer sets the producer of an encoded record set. The offsets are those of the record batch format 2, after the
// size of the set.
func setProducer(set []byte, p Producer, sequence int32) {
	be := binary.BigEndian
	be.PutUint64(set[4+43:], uint64(p.ID))
	be.PutUint16(set[4+51:], uint16(p.Epoch))
	be.PutUint32(set[4+53:], uint32(sequence))
	be.PutUint32(set[4+17:], crc32.Checksum(set[4+21:], crc32.MakeTable(crc32.Castagnoli)))
}

// TestFenceOfBroker shows what the sink's fences require of Kafka: a producer that has ended an empty transaction writes
// ordinary batches, and producers with an older epoch are rejected where its marker or its first batch is.
func TestFenceOfBroker(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "fences", 2, nil)
	c := newClient(t, Config{Brokers: []string{broker.Addr()}})
	p := &Partition{Topic: "fences", Leader: broker.Addr()}
	other := &Partition{Topic: "fences", ID: 1, Leader: broker.Addr()}
	txn := &Transactions{Client: c, ID: "fence-of-broker"}
	expect := func(what string, got, want kafkago.Error) {
		t.Helper()
		if got != want {
			t.Errorf("%s: code %d, want %d", what, got, want)
		}
	}

	old := fenced(t, p, c, txn, NoProducer())
	expect("the first batch", write(t, p, c, old, 0), 0)
	expect("in another partition", write(t, other, c, old, 0), 0)
	mark(t, p, c, txn, old) // a renewal
	expect("after the renewal, with the next sequence number", write(t, p, c, old, 1), 0)
	expect("with a number left out", write(t, p, c, old, 3), kafkago.OutOfOrderSequenceNumber)

	own := fenced(t, p, c, txn, NoProducer())
	if own.ID != old.ID || own.Epoch <= old.Epoch {
		t.Errorf("the next process is %v, after %v", own, old)
	}
	expect("the process before", write(t, p, c, old, 2), kafkago.InvalidProducerEpoch)
	expect("the process before repeats its last batch", write(t, p, c, old, 1), kafkago.InvalidProducerEpoch)
	expect("without a marker", write(t, other, c, old, 1), 0)
	expect("the first batch of the process", write(t, other, c, own, 0), 0)
	expect("behind it", write(t, other, c, old, 2), kafkago.InvalidProducerEpoch)
	for what, err := range map[string]error{
		"Add": txn.Add(t.Context(), old, p.Topic, p.ID),
		"End": txn.End(t.Context(), old),
	} {
		if !errors.Is(err, kafkago.ProducerFenced) {
			t.Errorf("%s of the process before: %v", what, err)
		}
	}
	if _, err := txn.Init(t.Context(), old); !errors.Is(err, kafkago.ProducerFenced) {
		t.Errorf("Init of the process before: %v", err)
	}

	expect("a batch", write(t, p, c, own, 0), 0)
	next := fenced(t, p, c, txn, own)
	if next.ID != own.ID || next.Epoch <= own.Epoch {
		t.Errorf("a new epoch of the same process is %v, after %v", next, own)
	}
	expect("the epoch before", write(t, p, c, own, 1), kafkago.InvalidProducerEpoch)
	expect("the new epoch, from 0", write(t, p, c, next, 0), 0)
}

// TestCoordinatorMoves: an error makes the client look for the coordinator again.
func TestCoordinatorMoves(t *testing.T) {
	broker := testkafka.ForTest(t)
	c := newClient(t, Config{Brokers: []string{broker.Addr()}})
	txn := &Transactions{Client: c, ID: "moves", Coordinator: "127.0.0.1:1"}
	waitUntil(t, func() bool {
		_, err := txn.Init(t.Context(), NoProducer())
		return err == nil
	})
	if txn.Coordinator != broker.Addr() {
		t.Errorf("the coordinator is %s, want %s", txn.Coordinator, broker.Addr())
	}
	if err := txn.Add(t.Context(), NoProducer(), "not.there", 0); err == nil {
		t.Error("a transaction without a producer")
	}
}
