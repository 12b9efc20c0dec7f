package kafkacheck_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/certs"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

const (
	warnReplica = ": the topic has one replica: if a broker is lost, its acknowledged events are lost too, and Kafka 4 can lose the marker of a fence while a partition has no leader (KAFKA-20734) -> increase the number of replicas to 3, and set min.insync.replicas to 2"
	warnState   = ": transaction.state.log.replication.factor of the brokers is 1: while a broker is down, a bridge that starts cannot fence some partitions, and their events wait; if the broker is lost, so are its fences -> set transaction.state.log.replication.factor to 3, and increase the number of replicas of the topic __transaction_state to 3"
	warnUnclean = ": unclean.leader.election.enable is true: acknowledged events, and fences, can be lost with a broker -> set unclean.leader.election.enable of the topic to false"
	warnSize    = ": the topic accepts at most %d bytes (compressed), but objects can have up to 1572864 bytes: see the sink's oversize setting for larger events -> increase max.message.bytes of the topic"
)

// TestCheck: each step of the way, and the topic's settings against the promises. Nothing is created.
func TestCheck(t *testing.T) {
	broker := testkafka.ForTest(t)
	large := map[string]string{"max.message.bytes": "4194304"}
	with := func(settings ...string) map[string]string {
		all := map[string]string{"max.message.bytes": "4194304"}
		for i := 0; i < len(settings); i += 2 {
			all[settings[i]] = settings[i+1]
		}
		return all
	}
	for topic, settings := range map[string]map[string]string{
		"check.well": large, "check.small": with("max.message.bytes", "20000"), "check.compact": with("cleanup.policy", "compact"),
		"check.insync": with("min.insync.replicas", "2"), "check.short": with("retention.ms", "60000"),
		"check.unclean": with("unclean.leader.election.enable", "true"),
	} {
		testkafka.CreateTopic(t, broker.Addr(), topic, 2, settings)
	}
	before := topicNames(t, broker.Addr())
	reached := []string{
		"ok connect ADDR",
		"ok protocol ADDR",
		"ok authorize idempotent producer",
		"ok authorize fence",
		"warn authorize fence" + warnState,
	}
	there := func(topic string, more ...string) []string {
		lines := slices.Concat(reached, []string{"ok authorize topic " + topic, "ok topic topic " + topic})
		for _, m := range more {
			kind, text, _ := strings.Cut(m, " ")
			lines = append(lines, kind+" topic topic "+topic+text)
		}
		return lines
	}
	replica := "warn " + warnReplica
	for _, c := range []struct {
		name string
		cfg  kafka.Config
		want []string
	}{
		{"well", kafka.Config{Topic: "check.well"}, there("check.well", replica)},
		{"too small for a message", kafka.Config{Topic: "check.small"}, there("check.small", replica, "warn "+fmt.Sprintf(warnSize, 20000))},
		{
			"compacted",
			kafka.Config{Topic: "check.compact"},
			there("check.compact", replica, "warn : the topic is compacted: the last event of each object stays forever, even if it is a deletion -> set kafka.tombstones: true"),
		},
		{"compacted, with tombstones", kafka.Config{Topic: "check.compact", Tombstones: true}, there("check.compact", replica)},
		{
			"tombstones without effect",
			kafka.Config{Topic: "check.well", Tombstones: true},
			there("check.well", replica, "warn : kafka.tombstones is set, but cleanup.policy of the topic is delete: tombstones have no effect -> set cleanup.policy of the topic to compact, or remove kafka.tombstones"),
		},
		{
			"acks can't be had",
			kafka.Config{Topic: "check.insync"},
			there("check.insync", "FAIL : topic: acks=all is impossible: min.insync.replicas is 2, but the topic has 1 replicas; reduce min.insync.replicas of the topic to less than its number of replicas, or add replicas (see kafka.topic)"+
				" -> reduce min.insync.replicas of the topic to less than its number of replicas, or add replicas (see kafka.topic)", replica),
		},
		{"unclean elections", kafka.Config{Topic: "check.unclean"}, there("check.unclean", replica, "warn "+warnUnclean)},
		{
			"short retention",
			kafka.Config{Topic: "check.short"},
			there("check.short", replica, "warn : the topic keeps events for 1m0s: a consumer that is down for longer misses events -> increase retention.ms of the topic"),
		},
		{
			"missing",
			kafka.Config{Topic: "check.missing"},
			append(slices.Clone(reached), "FAIL topic topic check.missing: topic: topic check.missing does not exist; create it, correct kafka.topic, or set kafka.createTopics"+
				" -> create it, correct kafka.topic, or set kafka.createTopics"),
		},
		{"would be created", kafka.Config{Topic: "check.missing", CreateTopics: &kafka.CreateTopics{}}, append(slices.Clone(reached), "ok topic topic check.missing")},
		{
			"would be created, but with too many replicas",
			kafka.Config{Topic: "check.missing", CreateTopics: &kafka.CreateTopics{ReplicationFactor: 3}},
			append(slices.Clone(reached), "FAIL topic topic check.missing: topic: create topic check.missing: Invalid Replication Factor: "+
				"Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because only 1 broker(s) are registered. (see kafka.createTopics.replicationFactor)"+
				" -> see kafka.createTopics.replicationFactor"),
		},
		{
			"template",
			kafka.Config{Topic: "check.w{name}"},
			append(slices.Clone(reached), "ok topic check.w{name}", "ok authorize topic check.well", "ok topic topic check.well", "warn topic topic check.well"+warnReplica),
		},
		{
			"template without topics",
			kafka.Config{Topic: "check.none.{name}"},
			append(slices.Clone(reached), "warn topic check.none.{name}: 0 existing topics match the template; events for other topics wait until these topics exist"+
				" -> create a topic for each value of the template, or set kafka.createTopics"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Brokers = []string{broker.Addr()}
			got := sinktest.Table(newSink(t, c.cfg).Check(t.Context()), broker.Addr())
			for i := range got { // brokers of version 4 add this
				got[i] = strings.ReplaceAll(got[i], " or some brokers have all their log directories cordoned", "")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if diff := cmp.Diff(before, topicNames(t, broker.Addr())); diff != "" {
		t.Errorf("topics have come or gone:\n%s", diff)
	}
}

func topicNames(t *testing.T, addr string) []string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	topics, err := kadm.NewClient(client).ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return topics.Names()
}

// TestCheckWay: a broker that does not do ends its own way only; certificates that end soon are told.
func TestCheckWay(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "check-way", 1, map[string]string{"max.message.bytes": "4194304"})
	s := newSink(t, kafka.Config{
		Brokers: []string{"127.0.0.1:1", broker.MutualTLSAddr(), "broker.invalid:9092"}, Topic: "check-way",
		TLS: clientCertificate(t, certs.Options{Name: "bridge", Lifetime: 48 * time.Hour}),
	})
	findings := s.Check(t.Context())
	got := sinktest.Table(findings, broker.MutualTLSAddr())
	for i, f := range findings {
		if f.Step == sinks.StepTLS || f.Step == sinks.StepFiles {
			got[i] = strings.Split(got[i], ":")[0]
			if f.Step == sinks.StepTLS &&
				(!strings.Contains(f.Detail, "TLS 1.3; the server's certificate") || !strings.Contains(f.Detail, `the client certificate ("CN=bridge") is valid until`)) {
				t.Errorf("TLS: %s", f.Detail)
			}
		}
	}
	want := []string{
		"ok files kafka",
		"FAIL connect 127.0.0.1:1: 127.0.0.1:1: connect: nothing listens there (connection refused); start the broker, or correct the port in kafka.brokers -> start the broker, or correct the port in kafka.brokers",
		"ok connect ADDR",
		"warn TLS ADDR",
		"ok protocol ADDR",
		`FAIL resolve broker.invalid:9092: broker.invalid:9092: resolve: there is no host "broker.invalid"; correct the name in kafka.brokers, or the DNS record -> correct the name in kafka.brokers, or the DNS record`,
		"ok authorize idempotent producer",
		"ok authorize fence",
		"warn authorize fence" + warnState,
		"ok authorize topic check-way",
		"ok topic topic check-way",
		"warn topic topic check-way" + warnReplica,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCheckStopsWhereItFails: later steps are not reported as if they had been tried.
func TestCheckStopsWhereItFails(t *testing.T) {
	broker := testkafka.ForTest(t)
	for _, c := range []struct {
		name string
		cfg  kafka.Config
		want []string
	}{
		{
			"no SASL where it is demanded",
			kafka.Config{Brokers: []string{broker.SASLAddr()}},
			[]string{"ok connect", "ok protocol", "FAIL authenticate"},
		},
		{
			"wrong password",
			kafka.Config{
				Brokers: []string{broker.SASLAddr()},
				SASL:    kafka.SASLConfig{Mechanism: "PLAIN", Username: testkafka.User, PasswordFile: passwordFile(t, "wr0ng")},
			},
			[]string{"ok files", "ok connect", "ok protocol", "FAIL authenticate"},
		},
		{
			"password in the clear",
			kafka.Config{
				Brokers: []string{broker.SASLAddr()}, Topic: "check.new", CreateTopics: &kafka.CreateTopics{},
				SASL: kafka.SASLConfig{Mechanism: "PLAIN", Username: testkafka.User, PasswordFile: passwordFile(t, testkafka.Password)},
			},
			[]string{"ok files", "ok connect", "ok protocol", "warn authenticate", "ok authorize", "ok authorize", "warn authorize", "ok topic"},
		},
		{
			"expired token",
			kafka.Config{Brokers: []string{broker.SASLAddr()}, SASL: oauth(t, broker, -time.Hour)},
			[]string{"ok files", "ok connect", "ok protocol", "FAIL authenticate"},
		},
		{
			"token in the clear",
			kafka.Config{
				Brokers: []string{broker.SASLAddr()}, Topic: "check.new", CreateTopics: &kafka.CreateTopics{},
				SASL: oauth(t, broker, time.Hour),
			},
			[]string{"ok files", "ok connect", "ok protocol", "warn authenticate", "ok authorize", "ok authorize", "warn authorize", "ok topic"},
		},
		{"TLS to a plaintext port", kafka.Config{Brokers: []string{broker.Addr()}, TLS: access.TLS{CAFile: broker.CAFile()}}, []string{"ok files", "ok connect", "FAIL TLS"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := sinktest.Table(newSink(t, c.cfg).Check(t.Context()), c.cfg.Brokers[0])
			for i := range got {
				got[i] = strings.Join(strings.Fields(got[i])[:2], " ")
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// oauth is authentication with a token in a file.
func oauth(t *testing.T, broker *testkafka.Broker, life time.Duration) kafka.SASLConfig {
	t.Helper()
	token, err := broker.Token("alice", testkafka.Audience, time.Now().Add(life))
	if err != nil {
		t.Fatal(err)
	}
	return kafka.SASLConfig{Mechanism: "OAUTHBEARER", OAuth: &wire.OAuth{TokenFile: passwordFile(t, token)}}
}

// TestCheckNoTransactions: a proxy, or a server that is compatible with Kafka, may not support fences.
func TestCheckNoTransactions(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.FindCoordinator}, Err: kerr.UnsupportedVersion, TopLevel: true, Count: -1,
	})
	addr := cluster.ListenAddrs()[0]
	got := strings.Join(sinktest.Table(newSink(t, kafka.Config{Brokers: []string{addr}}).Check(t.Context()), addr), "\n")
	if !strings.Contains(got, "warn authorize fence: ") || !strings.Contains(got, "Unsupported Version") {
		t.Error(got)
	}
}

// TestCheckAdvertised: a cluster that tells clients to go where they can't is the broker's mistake.
func TestCheckAdvertised(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cluster.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		res := kmsg.NewPtrMetadataResponse()
		res.Version = 8
		broker := kmsg.NewMetadataResponseBroker()
		broker.Host, broker.Port = "internal.invalid", 9092
		res.Brokers = append(res.Brokers, broker)
		return res, nil, true
	})
	addr := cluster.ListenAddrs()[0]
	got := sinktest.Table(newSink(t, kafka.Config{Brokers: []string{addr}}).Check(t.Context()), addr)
	const remedy = "the cluster advertises this address: set advertised.listeners of that broker to an address that is reachable from here"
	const want = `FAIL resolve internal.invalid:9092: internal.invalid:9092: resolve: there is no host "internal.invalid"; ` + remedy + " -> " + remedy
	if !slices.Contains(got, want) {
		t.Errorf("got\n%s\nwithout\n%s", strings.Join(got, "\n"), want)
	}
}

// TestCheckFence: if the sink can't fence earlier processes or read back their records, the check only warns, because
// events are delivered anyway.
func TestCheckFence(t *testing.T) {
	broker := testkafka.NewForTest(t,
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:ANONYMOUS",
		"producer.id.expiration.ms=3600000", "transactional.id.expiration.ms=18000000")
	testkafka.CreateTopic(t, broker.Addr(), "fenced", 1, nil)
	acls := kadm.NewACLs().ResourcePatternType(kadm.ACLPatternPrefixed)
	testkafka.Grant(t, broker.Addr(), acls.Topics("fenced").Operations(kmsg.ACLOperationDescribe, kmsg.ACLOperationWrite))
	password := passwordFile(t, testkafka.Password)
	check := func(cfg kafka.Config, want ...string) {
		t.Helper()
		var got []string
		for _, line := range sinktest.Table(newSink(t, cfg).Check(t.Context()), cfg.Brokers[0]) {
			if strings.Contains(line, "fence: ") || line == "ok authorize fence" || strings.Contains(line, "may not read") {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	cfg := kafka.Config{
		Topic: "fenced", Brokers: []string{broker.SASLAddr()},
		SASL: kafka.SASLConfig{Mechanism: "PLAIN", Username: testkafka.User, PasswordFile: password},
	}
	check(cfg,
		"warn authorize fence: transactional ids are not permitted: after a crash, events are written twice -> "+
			`give user "alice" the permissions Describe and Write on the transactional ids with the prefix deltabridge.`,
		`warn topic topic fenced: user "alice" may not read: after a crash, events are written twice -> `+
			`give user "alice" the permission Read on the topic`)
	check(*cfg.Letters("", &sinks.LetterPlace{Topic: "fenced"}).(*kafka.Config)) // not read back
	testkafka.Grant(t, broker.Addr(), kadm.NewACLs().ResourcePatternType(kadm.ACLPatternPrefixed).
		TransactionalIDs("deltabridge.").Operations(kmsg.ACLOperationDescribe, kmsg.ACLOperationWrite))
	testkafka.Grant(t, broker.Addr(), acls.Operations(kmsg.ACLOperationRead))
	check(cfg, "ok authorize fence") // the settings of the brokers can't be read
	const forget = " brokers can forget a fence -> set "
	check(kafka.Config{Topic: "fenced", Brokers: []string{broker.Addr()}}, "ok authorize fence",
		"warn authorize fence: producer.id.expiration.ms of the brokers is 1h0m0s, and fences are renewed every 4h0m0s:"+
			forget+"producer.id.expiration.ms to at least 8h0m0s",
		"warn authorize fence: transactional.id.expiration.ms of the brokers is 5h0m0s, and fences are renewed every 4h0m0s:"+
			forget+"transactional.id.expiration.ms to at least 8h0m0s",
		"warn authorize fence"+warnState)
}
