package natscheck

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

// required is what a sink with ordinary settings requires; edit changes it.
func required(edit func(*Stream)) *Stream {
	s := &Stream{
		Access: &natsconn.Access{Auth: natsconn.Auth{User: "bridge"}, Timeout: time.Second}, Wildcard: "k8s.*.*",
		Config: jetstream.StreamConfig{Name: "K8S"},
	}
	if edit != nil {
		edit(s)
	}
	return s
}

// fit is a stream about which there is nothing to say; edit changes it.
func fit(edit func(*jetstream.StreamConfig)) *jetstream.StreamConfig {
	c := &jetstream.StreamConfig{
		Name:              "K8S",
		Subjects:          []string{"k8s.>"},
		Replicas:          3,
		Duplicates:        2 * time.Minute,
		MaxMsgsPerSubject: -1,
	}
	if edit != nil {
		edit(c)
	}
	return c
}

func latest(s *Stream) { s.Config.MaxMsgsPerSubject, s.Config.AllowMsgTTL = 1, true }

func TestUnfit(t *testing.T) {
	bucket := func(s *Stream) { s.Config.MaxMsgsPerSubject, s.Config.AllowRollup = 1, true }
	for _, c := range []struct {
		sink   func(*Stream)
		stream func(*jetstream.StreamConfig)
		want   string // in the error; empty: it is fit
	}{
		{nil, nil, ""},
		{nil, func(c *jetstream.StreamConfig) { c.Subjects = []string{"orders.*", "k8s.prod.*"} }, ""},
		{nil, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, ""},
		{nil, func(c *jetstream.StreamConfig) { c.Sealed = true }, "it is sealed"},
		{nil, func(c *jetstream.StreamConfig) { c.NoAck = true }, "turn no_ack off"},
		{nil, func(c *jetstream.StreamConfig) { c.Mirror = &jetstream.StreamSource{Name: "OTHER"} }, "use the stream that it mirrors"},
		{nil, func(c *jetstream.StreamConfig) { c.Subjects = []string{"orders.>"} }, `its subjects ["orders.>"] include none of "k8s.*.*"`},
		{latest, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, ""},
		{latest, nil, "its max_msgs_per_subject is -1"},
		{latest, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, "nats stream edit K8S --max-msgs-per-subject=1"},
		{bucket, func(c *jetstream.StreamConfig) { c.Name, c.MaxMsgsPerSubject = "KV_STATE", 5 }, "has a history of 5, but nats.bucket requires 1: run nats kv edit STATE --history=1"},
	} {
		err := required(c.sink).Unfit(fit(c.stream))
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
		if err != nil &&
			(!sinks.IsRejected(err) || !strings.HasPrefix(err.Error(), "stream: stream K8S: ") || !strings.HasSuffix(err.Error(), "(see nats.stream)")) {
			t.Errorf("%v", err)
		}
	}
}

// Each warning, of the sink and of a check alone, for the one setting that raises it.
func TestWarnings(t *testing.T) {
	const large = 8 << 20
	for _, c := range []struct {
		sink       func(*Stream)
		stream     func(*jetstream.StreamConfig)
		maxPayload int64
		lost       bool // the sink logs it too
		want       string
	}{
		{nil, nil, large, false, ""},
		{nil, func(c *jetstream.StreamConfig) { c.Subjects = []string{"k8s.prod.*"} }, large, true, `include only a part of "k8s.*.*"`},
		{nil, func(c *jetstream.StreamConfig) { c.MaxBytes = 100 }, large, true, "when full (max_bytes 100"},
		{nil, func(c *jetstream.StreamConfig) { c.MaxBytes, c.Discard = 100, jetstream.DiscardNew }, large, false, ""},
		{nil, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 2 }, large, true, "it keeps only the last 2 messages of each subject"},
		{nil, func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, large, true, "its retention is interest"},
		{nil, func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }, large, true, "its persist_mode is async"},
		{nil, func(c *jetstream.StreamConfig) { c.Duplicates = time.Second }, large, true, "a message that the server receives late can be stored twice"},
		{nil, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 }, large, true, "it accepts messages of at most 1000 bytes"},
		{nil, nil, 1 << 20, true, "it accepts messages of at most 1048576 bytes"},
		{nil, func(c *jetstream.StreamConfig) { c.MaxAge = time.Minute }, large, false, "it keeps messages for 1m0s"},
		{nil, func(c *jetstream.StreamConfig) { c.Replicas = 1 }, large, false, "it has one replica"},
		{nil, func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, large, false, "if all its servers are down"},
		{latest, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.AllowMsgTTL = 1, true }, large, false, ""},
		{latest, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 1 }, large, false, "allow_msg_ttl"},
		{func(s *Stream) { latest(s); s.DeletionsKeptFor = time.Minute }, func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.AllowMsgTTL = 1, true
		}, large, false, "it keeps deletions only for 1m0s"},
		{latest, func(c *jetstream.StreamConfig) { c.MaxAge, c.AllowMsgTTL = time.Minute, true }, large, true, "it removes objects that do not change for 1m0s"},
		{latest, func(c *jetstream.StreamConfig) { c.Duplicates, c.AllowMsgTTL = 0, true }, large, false, ""},
	} {
		s, config := required(c.sink), fit(c.stream)
		found := s.doctorWarnings(config, c.maxPayload)
		switch {
		case c.want == "" && len(found) > 0, c.want != "" && len(found) != 1:
			t.Errorf("%q: %+v", c.want, found)
			continue
		case c.want != "" && (!found[0].Warn || found[0].Remedy == "" || !strings.Contains(found[0].Detail+found[0].Remedy, c.want)):
			t.Errorf("%+v, want %q", found[0], c.want)
		}
		if lost := s.Warnings(config, c.maxPayload); (len(lost) == 1) != c.lost {
			t.Errorf("%q: warnings %+v", c.want, lost)
		}
	}
}

func TestError(t *testing.T) {
	api := func(code int, number server.ErrorIdentifier, text string) error {
		return &jetstream.APIError{Code: code, ErrorCode: jetstream.ErrorCode(number), Description: text}
	}
	type said struct {
		Text     string
		Rejected bool
	}
	for _, c := range []struct {
		err  error
		want said
	}{
		{
			fmt.Errorf(`%w: Permissions Violation for Publish to "$JS.API.INFO"`, natsgo.ErrPermissionViolation),
			said{`authorize: stream K8S can't be looked up or created: Permissions Violation for Publish to "$JS.API.INFO"; on the server, allow user "bridge" to publish to $JS.API.INFO`, true},
		},
		{natsgo.ErrNoResponders, said{`stream: JetStream is not enabled for the server or this account, or it has not started yet (nats: no responders available for request); enable JetStream on the server, and for the account of user "bridge"`, false}},
		{jetstream.ErrStreamNotFound, said{"stream: stream K8S does not exist; create it, correct nats.stream.name, or set nats.stream.create: true", true}},
		{context.DeadlineExceeded, said{"stream: stream K8S: JetStream does not respond within 1s; check whether the cluster has a JetStream leader (nats server report jetstream) (see nats.stream)", false}},
		{
			api(http.StatusNotFound, server.JSConsumerNotFoundErr, "consumer not found"),
			said{"stream: stream K8S: the server has removed the consumer that reads the stream back; check whether the cluster has a JetStream leader (nats server report jetstream) (see nats.stream)", false},
		},
		{
			api(http.StatusBadRequest, server.JSMaximumStreamsLimitErr, "too many"),
			said{"stream: cannot create stream K8S: too many; raise the account's limit on streams, or use an existing stream (see nats.stream.create)", true},
		},
		{
			api(http.StatusServiceUnavailable, server.JSClusterNotAvailErr, "not available"),
			said{"stream: cannot create stream K8S: not available (see nats.stream)", false},
		},
		{
			api(http.StatusServiceUnavailable, server.JSInsufficientResourcesErr, "no room"),
			said{"stream: cannot create stream K8S: no room; raise the limits of the server or the account, or reduce the size limits of the stream (see nats.stream.maxBytes)", true},
		},
		{errors.New("anything"), said{"stream: stream K8S: anything (see nats.stream)", false}},
	} {
		err := required(nil).Error(c.err)
		if diff := cmp.Diff(c.want, said{err.Error(), sinks.IsRejected(err)}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%v does not wrap its cause", err)
		}
	}
}

func TestDestination(t *testing.T) {
	s := required(nil)
	info := &jetstream.StreamInfo{Created: time.Date(2026, 11, 22, 1, 2, 3, 4, time.FixedZone("", 3600))}
	if got, want := s.Destination(info), "stream K8S, created 2026-11-22T00:02:03.000000004Z"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
