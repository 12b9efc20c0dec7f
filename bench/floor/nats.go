package main

import (
	"fmt"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// maxPending limits the unacknowledged messages. It is the default of nats.go.
const maxPending = 4000

// patience limits the wait of a message for a free slot, and the wait for all acknowledgements at the end.
const patience = time.Minute

// jetStream publishes asynchronously to one subject, without headers.
type jetStream struct {
	conn    *natsgo.Conn
	js      jetstream.JetStream
	subject string
	failed  atomic.Pointer[error]
	wait    jetstream.PublishOpt
}

func newNATS(o options) (*jetStream, error) {
	conn, err := natsgo.Connect(o.nats)
	if err != nil {
		return nil, err
	}
	j := &jetStream{conn: conn, subject: o.subject, wait: jetstream.WithStallWait(patience)}
	j.js, err = jetstream.New(
		conn,
		jetstream.WithPublishAsyncMaxPending(maxPending),
		jetstream.WithPublishAsyncErrHandler(
			func(_ jetstream.JetStream, _ *natsgo.Msg, err error) { j.failed.CompareAndSwap(nil, &err) },
		),
	)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return j, nil
}

func (j *jetStream) send(line []byte) error {
	_, err := j.js.PublishMsgAsync(&natsgo.Msg{Subject: j.subject, Data: line}, j.wait)
	return err
}

func (j *jetStream) finish() error {
	defer j.conn.Close()
	select {
	case <-j.js.PublishAsyncComplete():
	case <-time.After(patience):
		return fmt.Errorf("%d messages are not acknowledged after %s", j.js.PublishAsyncPending(), patience)
	}
	if err := j.failed.Load(); err != nil {
		return *err
	}
	return nil
}
