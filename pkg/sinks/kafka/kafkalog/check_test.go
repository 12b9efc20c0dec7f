package kafkalog

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// checkLines returns the findings about the state log as lines, without those about connections.
func checkLines(t *testing.T, l *Log) (lines []string) {
	t.Helper()
	for _, f := range l.Check(t.Context()) {
		line := "ok "
		switch {
		case f.Err != nil:
			line, f.Detail = "FAIL ", f.Err.Error()
		case f.Warn:
			line = "warn "
		}
		if f.Step == "authorize" || f.Step == "topic" || f.Err != nil {
			lines = append(lines, line+f.Target+": "+f.Detail)
		}
	}
	return lines
}

// TestCheck: a check finds what Fence would find, and creates nothing.
func TestCheck(t *testing.T) {
	unlimited := map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
	for name, c := range map[string]struct {
		partitions int32             // 0 if the topic does not exist
		settings   map[string]string // in addition to unlimited ones
		create     *CreateTopics
		want       string // of the line about the topic
	}{
		"one replica": {1, nil, nil, "warn topic state: it has 1 replicas, and min.insync.replicas is 1: commits can be lost"},
		"too few replicas": {
			1,
			map[string]string{"min.insync.replicas": "2"},
			nil,
			"FAIL topic state: it has 1 replicas, but min.insync.replicas is 2: nothing can be written",
		},
		"limited": {1, map[string]string{"retention.ms": "1000"}, nil, "FAIL topic state: topic: retention.ms of topic state is 1000"},
		"several": {2, nil, nil, "FAIL topic state: topic: topic state has 2 partitions, not one"},
		"missing": {0, nil, nil, "FAIL topic state: topic: topic state does not exist"},
		"created": {0, nil, &CreateTopics{ReplicationFactor: 1}, "ok topic state: the topic does not exist; the cluster allows"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := newFake(t, kfake.NumBrokers(1))
			configs := map[string]*string{}
			for _, settings := range []map[string]string{unlimited, c.settings} {
				for n, v := range settings {
					configs[n] = &v
				}
			}
			if c.partitions > 0 {
				createTopic(t, fake, c.partitions, configs)
			}
			l := open(t, fake.ListenAddrs(), "state")
			l.cfg.CreateTopics = c.create
			before := topics(t, fake)
			lines := checkLines(t, l)
			const fence = "ok transactional id deltabridge.state.state: earlier processes can be fenced"
			if len(lines) != 2 || lines[0] != fence || !strings.HasPrefix(lines[1], c.want) {
				t.Errorf("got\n%s\nwant\n%s\n%s", strings.Join(lines, "\n"), fence, c.want)
			}
			if diff := cmp.Diff(before, topics(t, fake)); diff != "" {
				t.Errorf("the check has changed topics:\n%s", diff)
			}
		})
	}
}

// topics returns the topics and the ends of their partitions.
func topics(t *testing.T, fake *kfake.Cluster) map[string]int64 {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListEndOffsets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int64{}
	ends.Each(func(o kadm.ListedOffset) { all[o.Topic] += o.Offset })
	return all
}

// TestCheckWrite: a broker with ACLs reports that the permission Write on the transactional id is missing. The check
// does not fence the leader.
func TestCheckWrite(t *testing.T) {
	broker := testkafka.NewForTest(t,
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS")
	leader := open(t, []string{broker.Addr()}, "state")
	after := mustAppend(t, leader, mustFence(t, leader), "1")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(testkafka.Password), 0o600); err != nil {
		t.Fatal(err)
	}
	id := kadm.NewACLs().TransactionalIDs("deltabridge.state.state").ResourcePatternType(kadm.ACLPatternLiteral)
	for _, step := range []struct {
		grant kmsg.ACLOperation
		want  string
	}{{kmsg.ACLOperationDescribe, "FAIL "}, {kmsg.ACLOperationWrite, "ok "}} {
		testkafka.Grant(t, broker.Addr(), id.Operations(step.grant))
		cfg := leader.cfg
		cfg.Brokers = []string{broker.SASLAddr()}
		cfg.SASL = wire.SASL{Mechanism: "PLAIN", Username: testkafka.User, PasswordFile: file}
		l, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		lines := checkLines(t, l)
		if len(lines) == 0 || !strings.HasPrefix(lines[0], step.want+"transactional id deltabridge.state.state: ") {
			t.Errorf("with %v: %q, want %s", step.grant, lines, step.want)
		}
		after = mustAppend(t, leader, after, "2")
	}
}

// TestCheckPermissions: a missing permission is a failure with the permissions that are required. The leader is not
// fenced.
func TestCheckPermissions(t *testing.T) {
	fake := newFake(t, kfake.NumBrokers(1))
	l := open(t, fake.ListenAddrs(), "state")
	after := mustAppend(t, l, mustFence(t, l), "1")
	for name, key := range map[string]kmsg.Key{"Describe": kmsg.FindCoordinator, "Write": kmsg.InitProducerID} {
		fake.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.TransactionalIDAuthorizationFailed})
		lines := checkLines(t, open(t, fake.ListenAddrs(), "state"))
		if len(lines) != 2 ||
			!strings.Contains(lines[0], "Describe and Write on the transactional id deltabridge.state.state") {
			t.Errorf("without %s on the transactional id: %q", name, lines)
		}
	}
	lines := checkLines(t, open(t, fake.ListenAddrs(), "state"))
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "ok ") {
		t.Errorf("with all permissions: %q", lines)
	}
	const readAndWrite = 1<<3 | 1<<4
	fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		asked := req.(*kmsg.MetadataRequest)
		res := req.ResponseKind().(*kmsg.MetadataResponse)
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = hostPort(t, fake.ListenAddrs()[0])
		res.Brokers = append(res.Brokers, broker)
		for range asked.Topics {
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic, topic.AuthorizedOperations = new("state"), readAndWrite
			res.Topics = append(res.Topics, topic)
		}
		return res, nil, true
	})
	lines = checkLines(t, open(t, fake.ListenAddrs(), "state"))
	if len(lines) != 2 || !strings.Contains(lines[1], "Describe, Read, Write and Delete on the topic state") {
		t.Errorf("without Delete on the topic: %q", lines)
	}
	mustAppend(t, l, after, "2") // the leader is not fenced
}

func hostPort(t *testing.T, addr string) (host string, port int32) {
	t.Helper()
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return host, int32(n)
}
