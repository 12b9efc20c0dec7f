package main

import (
	"bytes"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// clusterUID is as long as a real one.
const clusterUID = "8d3f6a0e-7c43-4b0b-9a55-0f6d0a3c1b7e"

// natsEvents publishes the events that the bridge would send of the lines, with the same subjects, ids and headers. The
// bridge's encoder makes them. It is the cheapest way to do so with nats.go: all messages share the map of the headers,
// and the acknowledgements arrive at a subscription of its own, which costs less than PublishMsgAsync.
type natsEvents struct {
	conn    *natsgo.Conn
	subject string // the first token
	inbox   string
	encoder event.Encoder
	header  natsgo.Header
	names   map[string]string // header names by attribute
	sent    int
	open    chan struct{} // has an element for each message without an acknowledgement
	failed  atomic.Pointer[error]
}

func newNATSEvents(o options) (*natsEvents, error) {
	conn, err := natsgo.Connect(o.nats)
	if err != nil {
		return nil, err
	}
	e := &natsEvents{
		conn: conn, subject: o.subject, inbox: conn.NewInbox() + ".",
		encoder: event.Encoder{Cluster: "bench", Payload: event.PayloadObject},
		header:  natsgo.Header{}, names: map[string]string{}, open: make(chan struct{}, maxPending),
	}
	if _, err := conn.Subscribe(e.inbox+"*", e.acknowledged); err != nil {
		conn.Close()
		return nil, err
	}
	return e, nil
}

func (e *natsEvents) acknowledged(answer *natsgo.Msg) {
	if bytes.Contains(answer.Data, []byte(`"error"`)) || answer.Header != nil { // 503: there is no stream
		err := fmt.Errorf("answer %v %s", answer.Header, answer.Data)
		e.failed.CompareAndSwap(nil, &err)
	}
	<-e.open
}

func (e *natsEvents) send(line []byte) error {
	if err := e.failed.Load(); err != nil {
		return *err
	}
	m, err := e.event(line)
	if err != nil {
		return err
	}
	clear(e.header)
	e.sent++
	e.header[jetstream.MsgIDHeader] = []string{m.UniqueID()}
	e.header[sinks.MarkHeader] = []string{"bench/bench " + strconv.Itoa(e.sent)}
	m.Headers(func(name, value string) bool {
		header, ok := e.names[name]
		if !ok {
			header = "ce-" + name
			e.names[name] = header
		}
		e.header[header] = []string{value}
		return true
	})
	if err := e.take(); err != nil {
		return err
	}
	return e.conn.PublishMsg(&natsgo.Msg{
		Subject: e.subject + ".bench.core.configmaps." + m.Identity.Namespace + "." + m.Identity.Name,
		Reply:   e.inbox + strconv.Itoa(e.sent), Header: e.header, Data: m.Data,
	})
}

// take waits until another message may be without an acknowledgement.
func (e *natsEvents) take() error {
	select {
	case e.open <- struct{}{}:
		return nil
	default: // only now, because a timer for each message would count
	}
	select {
	case e.open <- struct{}{}:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("no acknowledgement in %s", patience)
	}
}

// event returns the event of a watch line, which is {"type":"MODIFIED","object":{...}}.
func (e *natsEvents) event(line []byte) (*event.Message, error) {
	start := bytes.IndexByte(line[1:], '{') + 1
	o, err := object.New(line[start : len(line)-1])
	if err != nil {
		return nil, err
	}
	m, err := e.encoder.Encode(event.Event{
		Type: event.Updated, Time: time.Now(), Object: o,
		Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
	})
	m.ClusterUID = clusterUID
	return m, err
}

func (e *natsEvents) finish() error {
	defer e.conn.Close()
	timeout := time.After(patience)
	for range maxPending { // until there is room for all of them, no message is without an acknowledgement
		select {
		case e.open <- struct{}{}:
		case <-timeout:
			return fmt.Errorf("%d messages are not acknowledged after %s", len(e.open), patience)
		}
	}
	if err := e.failed.Load(); err != nil {
		return *err
	}
	return nil
}
