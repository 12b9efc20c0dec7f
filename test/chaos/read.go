package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/kafka"
)

// dest is the destination of a sink.
type dest struct {
	kind   Kind
	stream string // or bucket, or topic
	proxy  *sinktest.Proxy
	events []*Event
	last   uint64 // sequence that was read

	control *dest // that of control events, if they have one of their own
}

// read gives all that a destination holds.
func (r *run) read(ctx context.Context, d *dest) ([]*Event, error) {
	switch d.kind {
	case Topic, CompactedTopic:
		return r.readTopic(d), nil
	case Latest, Bucket:
		d.events, d.last = nil, 0 // older messages go
	}
	name := d.stream
	if d.kind == Bucket {
		name = "KV_" + name
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := r.w.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil // the bridge has not come to make it
	}
	if err != nil {
		return nil, err
	}
	state := s.CachedInfo().State
	if state.Msgs == 0 || state.LastSeq <= d.last {
		return d.events, nil
	}
	consumer, err := s.OrderedConsumer(
		ctx,
		jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: d.last + 1},
	)
	if err != nil {
		return nil, err
	}
	for d.last < state.LastSeq {
		batch, err := consumer.Fetch(500, jetstream.FetchMaxWait(300*time.Millisecond))
		if err != nil {
			return nil, err
		}
		got := 0
		for m := range batch.Messages() {
			got++
			e, seq, err := parseMessage(m)
			if err != nil {
				return nil, err
			}
			d.events, d.last = append(d.events, e), seq
		}
		if got == 0 {
			break
		}
	}
	return d.events, nil
}

func parseMessage(m jetstream.Msg) (*Event, uint64, error) {
	meta, err := m.Metadata()
	if err != nil {
		return nil, 0, err
	}
	attributes := map[string]string{}
	for name, values := range m.Headers() {
		if attribute, ok := strings.CutPrefix(strings.ToLower(name), "ce-"); ok {
			value, err := url.PathUnescape(values[0])
			if err != nil {
				return nil, 0, err
			}
			attributes[attribute] = value
		}
	}
	e, err := parse(attributes, m.Data())
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", m.Subject(), err)
	}
	e.At, e.Seq = meta.Timestamp, int64(meta.Sequence.Stream)
	return e, meta.Sequence.Stream, nil
}

func (r *run) readTopic(d *dest) (events []*Event) {
	if !kafka.HasTopic(r.w.t, r.w.kafka.Addr(), d.stream) {
		return nil // the bridge has not come to make it
	}
	for place, records := range kafka.ReadAll(r.w.t, r.w.kafka.Addr(), d.stream) {
		for _, record := range records {
			e := &Event{}
			if record.Value != nil {
				attributes := map[string]string{}
				for _, h := range record.Headers {
					if attribute, ok := strings.CutPrefix(h.Key, "ce_"); ok {
						attributes[attribute] = string(h.Value)
					}
				}
				var err error
				if e, err = parse(attributes, record.Value); err != nil {
					r.w.t.Fatalf("%s: %v", d.stream, err)
				}
			}
			e.Seq = record.Offset
			e.Place, e.At, e.Key = place, record.Timestamp, string(record.Key)
			events = append(events, e)
		}
	}
	return events
}

func parse(a map[string]string, data []byte) (*Event, error) {
	kind := strings.Split(a["type"], ".")
	e := &Event{
		Operation: kind[len(kind)-1],
		ID:        a["id"],
		UID:       a["uid"],
		Left:      a["leftfilter"] == "true",
		Unknown:   a["finalstateunknown"] == "true",
		Initial:   a["initiallist"] == "true",
	}
	var err error
	if e.Made, err = time.Parse(time.RFC3339Nano, a["time"]); err != nil {
		return nil, err
	}
	parts := strings.Split(a["subject"], "/")
	e.Resource = parts[0]
	switch e.Operation {
	case "gap":
		var g struct {
			Resource, Reason, From, To, Subject string
			Events                              int
		}
		if err := json.Unmarshal(data, &g); err != nil {
			return nil, err
		}
		from, _ := strconv.ParseInt(g.From, 10, 64) // empty: unknown
		to, _ := strconv.ParseInt(g.To, 10, 64)
		e.Gap = &Gap{Resource: g.Resource, Reason: g.Reason, From: from, To: to, Events: g.Events, Subject: g.Subject}
		return e, nil
	case "synced":
		return e, nil
	case "progress":
		return e, e.parseProgress(data)
	}
	if len(parts) != 3 || parts[1] == "" {
		return nil, fmt.Errorf("subject %q", a["subject"])
	}
	e.Namespace, e.Name = parts[1][len(parts[1])-1:], parts[2]
	if e.RV, err = strconv.ParseInt(a["resourceversion"], 10, 64); err != nil {
		return nil, err
	}
	if e.Operation == "deleted" {
		return e, nil
	}
	type object struct {
		Metadata struct{ Annotations map[string]string }
	}
	var content struct {
		object
		Object *object
	}
	if err := json.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	if content.Object == nil {
		content.Object = &content.object
	}
	e.Stamp = content.Object.Metadata.Annotations[stampNote]
	return e, nil
}

func (e *Event) parseProgress(data []byte) (err error) {
	var info struct {
		ResourceVersion string
		Position        *struct {
			Offsets  map[int]int64
			Sequence int64
		}
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return err
	}
	if e.RV, err = strconv.ParseInt(info.ResourceVersion, 10, 64); err != nil || info.Position == nil {
		return err
	}
	if e.Position = info.Position.Offsets; e.Position == nil {
		e.Position = map[int]int64{0: info.Position.Sequence}
	}
	return nil
}
