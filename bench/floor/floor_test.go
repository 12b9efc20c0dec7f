package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/segmentio/kafka-go/protocol"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Lines of all lengths, some larger than the buffer, come out as they went in, however they are read.
func TestEach(t *testing.T) {
	var want []string
	for n := range 200 {
		want = append(want, fmt.Sprintf("%d:%s", n, strings.Repeat("x", n*n)))
	}
	want = append(want, strings.Repeat("y", 3*readBuffer), "the last")
	text := strings.Join(want, "\n") + "\n"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "in halves": iotest.HalfReader(strings.NewReader(text)),
		"with the end": iotest.DataErrReader(strings.NewReader(text)),
	} {
		t.Run(name, func(t *testing.T) {
			var kept [][]byte // nobody writes to a line later
			if err := each(r, 0, func(line []byte) error { kept = append(kept, line); return nil }); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, line := range kept {
				got = append(got, string(line))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	count := 0
	if err := each(strings.NewReader(text), 7, func([]byte) error { count++; return nil }); err != nil || count != 7 {
		t.Errorf("%d lines of 7, %v", count, err)
	}
	if err := each(
		strings.NewReader(text),
		1000,
		func([]byte) error { return nil },
	); !errors.Is(
		err,
		io.ErrUnexpectedEOF,
	) {
		t.Errorf("a stream that is too short: %v", err)
	}
}

// What the floor encodes is what a client of Kafka reads.
func TestBatch(t *testing.T) {
	var b batch
	for round := range 2 { // the second one in the memory of the first
		b.reset()
		var want []string
		for n := range 300 {
			want = append(want, fmt.Sprintf("%d-%d %s", round, n, strings.Repeat("z", 10*n)))
			b.add([]byte(want[n]))
		}
		var set protocol.RecordSet
		if _, err := set.ReadFrom(bytes.NewReader(b.encode())); err != nil {
			t.Fatal(err)
		}
		var got []string
		for {
			record, err := set.Records.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			value, err := protocol.ReadAll(record.Value)
			if err != nil {
				t.Fatal(err)
			}
			if record.Key != nil || record.Offset != int64(len(got)) {
				t.Errorf("record %d has the key %v and the offset %d", len(got), record.Key, record.Offset)
			}
			got = append(got, string(value))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
