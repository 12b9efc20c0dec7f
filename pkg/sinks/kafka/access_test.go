package kafka

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// TestAccess: the configuration reaches the connections, and a broker without the only topic is not enough. The ways to
// fail are tested in internal/wire.
func TestAccess(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "access", 1, nil)
	cfg := Config{
		Brokers: []string{broker.SASLTLSAddr()}, Topic: "access", TLS: access.TLS{CAFile: broker.CAFile()},
		SASL: SASLConfig{
			Mechanism: "SCRAM-SHA-512", Username: testkafka.User, PasswordFile: passwordFile(t, testkafka.Password),
		},
	}
	mustSend(t, connected(t, cfg), change(event.Added, "a", 1))
	cfg.Topic = "not.there"
	want := blamed{
		sinks.StepTopic, "kafka.createTopics",
		"topic: topic not.there does not exist; create it, correct kafka.topic, or set kafka.createTopics",
	}
	if diff := cmp.Diff(want, blame(t, newSink(t, cfg).Connect(t.Context()), cfg.Brokers[0])); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	cfg.TLS = access.TLS{}
	if got := blame(t, newSink(t, cfg).Connect(t.Context()), cfg.Brokers[0]); got.Step != sinks.StepTLS {
		t.Errorf("without TLS: %+v", got)
	}
}

// TestNotAllowed: if a user has no permissions on the topic, the error names the required permissions.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	broker := testkafka.NewForTest(t,
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS")
	testkafka.CreateTopic(t, broker.Addr(), "secret", 1, nil)
	cfg := Config{
		Brokers: []string{broker.SASLAddr()}, Topic: "secret",
		SASL: SASLConfig{Mechanism: "PLAIN", Username: testkafka.User, PasswordFile: passwordFile(t, testkafka.Password)},
	}
	want := blamed{
		sinks.StepAuthorize,
		"kafka.topic",
		`topic secret: not allowed (Topic Authorization Failed); give user "alice" the permissions Describe and Write on the topic`,
	}
	want.Text = "authorize: " + want.Text + " (see kafka.topic)"
	if diff := cmp.Diff(want, blame(t, newSink(t, cfg).Connect(t.Context()), broker.SASLAddr())); diff != "" {
		t.Errorf("Connect (-want +got):\n%s", diff)
	}

	allow(t, broker.Addr(), "secret", kmsg.ACLOperationDescribe)
	err := newSink(t, cfg).Connect(t.Context())
	if got := blame(
		t,
		err,
		broker.SASLAddr(),
	); got.Step != sinks.StepAuthorize ||
		!strings.Contains(got.Text, "producer id") {
		t.Errorf("no producer id: %+v", got)
	}
	allow(t, broker.Addr(), "other", kmsg.ACLOperationWrite) // which is enough for a producer id
	s := connected(t, cfg)
	want.Text = strings.Replace(want.Text, "topic secret", "partition 0 of topic secret", 1)
	if diff := cmp.Diff(want, blame(t, send(t, s, change(event.Added, "a", 1))[0], broker.SASLAddr())); diff != "" {
		t.Errorf("Send (-want +got):\n%s", diff)
	}
	findings := s.Check(t.Context())
	if diff := cmp.Diff([]string{"authorize"}, sinktest.Failures(findings)); diff != "" {
		t.Errorf("Check (-want +got):\n%s\n%+v", diff, findings)
	}

	cfg.Topic, cfg.CreateTopics = "new", &CreateTopics{}
	want = blamed{sinks.StepAuthorize, "kafka.topic", ""}
	if got := blame(t, newSink(t, cfg).Connect(t.Context()), broker.SASLAddr()); got.Step != want.Step {
		t.Errorf("creating: %+v", got)
	}

	allow(t, broker.Addr(), "secret", kmsg.ACLOperationWrite)
	mustSend(t, s, change(event.Added, "a", 1))
}

// TestFencePermissions: without the permissions for fences, the sink writes anyway and reports the missing permissions.
func TestFencePermissions(t *testing.T) {
	t.Parallel()
	broker := testkafka.NewForTest(t,
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS")
	testkafka.CreateTopic(t, broker.Addr(), "fenced", 1, nil)
	allow(t, broker.Addr(), "fenced", kmsg.ACLOperationDescribe)
	allow(t, broker.Addr(), "fenced", kmsg.ACLOperationWrite)
	var log bytes.Buffer
	cfg := Config{
		Brokers: []string{broker.SASLAddr()}, Topic: "fenced", Logger: slog.New(slog.NewTextHandler(&log, nil)),
		SASL: SASLConfig{Mechanism: "PLAIN", Username: testkafka.User, PasswordFile: passwordFile(t, testkafka.Password)},
	}
	var at stored
	prefixed := kadm.NewACLs().TransactionalIDs("deltabridge.").ResourcePatternType(kadm.ACLPatternPrefixed)
	for i, missing := range []string{"transactional id", "read partition 0 of topic fenced", ""} {
		sendAll(t, process(t, cfg, &at), change(event.Added, "a", i))
		text := log.String()
		log.Reset()
		if warned := strings.Contains(text, "missing Kafka permissions"); !strings.Contains(text, missing) ||
			warned != (missing != "") {
			t.Errorf("without the permission on %q: %s", missing, text)
		}
		if (len(at.all) > 0) != (missing == "") {
			t.Errorf("without the permission on %q: %v", missing, at.all)
		}
		if i == 0 {
			testkafka.Grant(t, broker.Addr(), prefixed.Operations(kmsg.ACLOperationDescribe, kmsg.ACLOperationWrite))
		} else {
			allow(t, broker.Addr(), "fenced", kmsg.ACLOperationRead)
		}
	}
}

func allow(t *testing.T, addr, topic string, op kmsg.ACLOperation) {
	t.Helper()
	testkafka.Grant(t, addr, kadm.NewACLs().Topics(topic).Operations(op).ResourcePatternType(kadm.ACLPatternLiteral))
}
