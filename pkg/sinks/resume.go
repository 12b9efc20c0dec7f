package sinks

import (
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// Resumer is a Sink that reads back, after a restart, which events its destination already has, and does not send these
// events again. For each part of the destination, the checkpoint contains the position from which the sink must read.
type Resumer interface {
	Sink
	// Resume is called once, before the first Connect. A sink for which it was not called reads nothing back.
	Resume(from Resume)
	// Positions returns the position of each part that this process has used. All records of this sink before the
	// position were acknowledged. No message is in flight when Positions is called, but some messages were perhaps
	// written without an acknowledgement; the position is before these messages. parked contains the parts of the
	// destination, as Part names them, that have parked events. The parked events were perhaps written, so Positions
	// leaves out all parts that can contain them.
	Positions(parked []string) Positions
	// Forget is called, like Positions, while no message is in flight. It means that no event comes again that was sent
	// before the last call of Positions. The sink can forget what it had read back until then (see Found.Forget).
	Forget()
	// FoundNothing reports whether the sink has read back everything that it must, and that was no record of an earlier
	// process. Then all events that earlier processes have sent were committed. Like Send, it is called by the goroutine
	// of the drain.
	FoundNothing() bool
	// Fenced reports whether the destination rejects what this process writes after another process with the same Writer
	// has begun to write. Like Send, it is called by the goroutine of the drain.
	Fenced() bool
}

// Resume contains what a Resumer must know of earlier processes.
type Resume struct {
	// Writer identifies the sink of this installation. It stays the same over restarts. All records that the sink
	// writes contain it (see Mark), and only records that contain it are read back.
	Writer string
	// Positions contains the stored positions.
	Positions Positions
	// Store adds positions to the stored ones. They are durable when it returns. The sink calls it before it writes to
	// a part for the first time, from any goroutine. Otherwise a restart would not know where the first records are.
	Store func(Positions) error
}

// Positions contains positions by part of the destination. The names of parts also identify the server.
type Positions map[string]Position

// Position is a position in one part of a destination, which is a log of numbered records.
type Position struct {
	// Next is the number of the first record that may contain an event which a restart brings again: a Kafka offset, or
	// the sequence of a JetStream stream.
	Next int64 `json:"next"`
	// Producer is the id of the Kafka producer that wrote the last records, or 0 if it is not known.
	Producer int64 `json:"producer,omitempty"`
	// Partitions is the number of partitions of the Kafka topic to which the records from Next on were written.
	Partitions int `json:"partitions,omitempty"`
	// Key is the template of the keys of these Kafka records.
	Key string `json:"key,omitempty"`
	// Journal is the identity of the journal in which Next is a number, for a sink that is sent audit events. Such a
	// position is not one in the destination.
	Journal string `json:"journal,omitempty"`
}

// MarkHeader is the name of the header that contains the result of Mark.
const MarkHeader = "deltabridge"

// Mark returns the value of the header that shows who wrote a record, and how its event relates to other events: the
// writer, and the event's History, Epoch and Delivery, separated by spaces. The part of the epoch that follows a dot
// says nothing about the configuration. Mark returns an empty string if the record is not read back: if there is no
// writer, or for a progress event, which is never sent again.
func Mark(writer string, m *event.Message) string {
	if !isMarked(writer, m) {
		return ""
	}
	return strings.TrimRight(writer+" "+m.History+" "+configuration(m.Epoch)+" "+m.Delivery, " ")
}

func isMarked(writer string, m *event.Message) bool { return writer != "" && m.Type != event.Progress }

// configuration returns the part of an epoch that identifies the configuration.
func configuration(epoch string) string {
	epoch, _, _ = strings.Cut(epoch, ".")
	return epoch
}

// Marks returns marks. It remembers the last mark, because most messages of a sink have the same mark. The writer must
// always be the same.
type Marks struct{ history, epoch, delivery, text string }

// Of returns the mark of a message.
func (k *Marks) Of(writer string, m *event.Message) string {
	if !isMarked(writer, m) {
		return ""
	}
	if k.text == "" || k.history != m.History || k.epoch != m.Epoch || k.delivery != m.Delivery {
		*k = Marks{m.History, m.Epoch, m.Delivery, Mark(writer, m)}
	}
	return k.text
}
