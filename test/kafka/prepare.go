package kafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/test/certs"
	"github.com/deltabridge/deltabridge/test/freeport"
)

// clusterID is any 16 bytes in URL-safe base64.
const clusterID = "ZGVsdGFicmlkZ2UtdGVzdA"

const logConfig = `<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out" target="SYSTEM_OUT"><PatternLayout pattern="%d %p %c{1}: %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="out"/></Root>
    <Logger name="org.apache.kafka.common.config" level="WARN"/>
    <Logger name="kafka.server.KafkaConfig" level="WARN"/>
  </Loggers>
</Configuration>
`

// ports of the listeners; kept in a file, so that a later Start on the same folder has the same.
type ports struct{ plain, sasl, tls, mutual, saslTLS, controller int }

// choosePorts sets the ports of the brokers: those of an earlier Start on the same folder, or free ones.
func choosePorts(brokers []*Broker) error {
	free, err := freeport.Reserve(6 * len(brokers))
	if err != nil {
		return err
	}
	for _, b := range brokers {
		if b.dir, err = filepath.Abs(b.dir); err != nil {
			return err
		}
		text, err := os.ReadFile(b.portsFile())
		if err != nil { // it is not there yet
			text, free = fmt.Append(nil, free[0], free[1], free[2], free[3], free[4], free[5]), free[6:]
		}
		p := &b.ports
		if _, err := fmt.Sscan(string(text), &p.plain, &p.sasl, &p.tls, &p.mutual, &p.saslTLS, &p.controller); err != nil {
			return fmt.Errorf("reading %s: %w", b.portsFile(), err)
		}
	}
	return nil
}

func (b *Broker) dataDir() string { return filepath.Join(b.dir, "data") }

func (b *Broker) portsFile() string { return filepath.Join(b.dir, "ports") }

// prepare fills the broker's folder: certificate, configuration, formatted storage, ports. What is there stays.
func (b *Broker) prepare(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	behind, err := freeport.Reserve(len(b.proxies))
	if err != nil {
		return err
	}
	for _, port := range behind {
		b.behind = append(b.behind, freeport.Address(port))
	}
	if err := b.writeFiles(); err != nil {
		return err
	}
	if _, err := os.Stat(b.portsFile()); err == nil {
		return nil // it was formatted
	}
	data, err := formatted(ctx, b.jars, b.node)
	if err != nil {
		return err
	}
	if err := os.CopyFS(b.dataDir(), os.DirFS(data)); err != nil {
		return err
	}
	p := b.ports
	// Last, for it says that the folder is complete.
	return os.WriteFile(b.portsFile(), fmt.Appendln(nil, p.plain, p.sasl, p.tls, p.mutual, p.saslTLS, p.controller), 0o644)
}

func (b *Broker) writeFiles() error {
	keyStore := filepath.Join(b.dir, "broker.pem")
	if _, err := os.Stat(keyStore); err != nil {
		if err := b.writeCertificates(keyStore); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "log4j2.xml"), []byte(logConfig), 0o644); err != nil {
		return err
	}
	if err := b.makeTokenKey(); err != nil {
		return err
	}
	lines := append(b.serverProperties(keyStore), b.properties...)
	return os.WriteFile(filepath.Join(b.dir, "server.properties"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

func (b *Broker) serverProperties(keyStore string) []string {
	listeners := fmt.Sprintf("PLAINTEXT://%s,SASL_PLAINTEXT://%s,SSL://%s,MUTUAL://%s,SASL_SSL://%s",
		b.Addr(), b.SASLAddr(), b.TLSAddr(), b.MutualTLSAddr(), b.SASLTLSAddr())
	controller, advertised, protocols := freeport.Address(b.ports.controller), listeners, ""
	for n, proxy := range b.proxies {
		listeners += fmt.Sprintf(",BEHIND%d://%s", n, b.behind[n])
		advertised += fmt.Sprintf(",BEHIND%d://%s", n, proxy)
		protocols += fmt.Sprintf(",BEHIND%d:PLAINTEXT", n)
	}
	jaas := func(mechanism, module string, more ...string) (lines []string) {
		for _, listener := range []string{"sasl_plaintext", "sasl_ssl"} {
			for _, line := range append(more, "sasl.jaas.config=org.apache.kafka.common.security."+module+";") {
				lines = append(lines, fmt.Sprintf("listener.name.%s.%s.%s", listener, mechanism, line))
			}
		}
		return lines
	}
	return slices.Concat(
		jaas("plain", fmt.Sprintf("plain.PlainLoginModule required user_%s=%q", User, Password)),
		jaas("scram-sha-256", "scram.ScramLoginModule required"),
		jaas("scram-sha-512", "scram.ScramLoginModule required"),
		jaas(
			"oauthbearer",
			"oauthbearer.OAuthBearerLoginModule required",
			"sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
			"sasl.oauthbearer.jwks.endpoint.url=file://"+b.keysFile(),
			"sasl.oauthbearer.expected.audience="+Audience,
		),
		[]string{
			"listeners=" + listeners + ",CONTROLLER://" + controller,
			"advertised.listeners=" + advertised,
			"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT" + protocols,
		},
		b.commonProperties(keyStore))
}

func (b *Broker) commonProperties(keyStore string) []string {
	return []string{
		"process.roles=broker,controller",
		fmt.Sprintf("node.id=%d", b.node),
		"controller.quorum.voters=" + strings.Join(b.voters, ","),
		"controller.listener.names=CONTROLLER",
		"inter.broker.listener.name=PLAINTEXT",
		"log.dirs=" + b.dataDir(),

		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
		"ssl.keystore.type=PEM",
		"ssl.keystore.location=" + keyStore,
		"listener.name.mutual.ssl.client.auth=required",
		"listener.name.mutual.ssl.truststore.type=PEM",
		"listener.name.mutual.ssl.truststore.location=" + filepath.Join(b.dir, "clients-ca.pem"),

		// One node, small, quick to start and to stop.
		"auto.create.topics.enable=false",
		"offsets.topic.replication.factor=1",
		"offsets.topic.num.partitions=1",
		"transaction.state.log.replication.factor=1",
		"transaction.state.log.min.isr=1",
		"transaction.state.log.num.partitions=1",
		"share.coordinator.state.topic.replication.factor=1",
		"share.coordinator.state.topic.min.isr=1",
		"group.initial.rebalance.delay.ms=0",
		// How long the controller takes a killed broker for alive, and refuses its next life.
		"broker.session.timeout.ms=3000",
		"broker.heartbeat.interval.ms=500",
		"metadata.max.idle.interval.ms=0", // nothing is written while nothing changes
		"num.network.threads=2",
		"num.io.threads=2",
		// Compaction soon after there is something to compact. The buffer's default is 128 MiB of heap.
		"log.cleaner.dedupe.buffer.size=4194304",
		"log.cleaner.backoff.ms=200",
	}
}

// clusterProperties replace those of one node.
var clusterProperties = []string{
	"default.replication.factor=3",
	"min.insync.replicas=2",
	"offsets.topic.replication.factor=3",
	"transaction.state.log.replication.factor=3",
	"transaction.state.log.min.isr=2",
	"share.coordinator.state.topic.replication.factor=3",
	"share.coordinator.state.topic.min.isr=2",
}

// writeCertificates makes two authorities and the broker's certificate: key and certificate for the broker, the
// certificate of its authority for clients, and the authority of clients, with its key, for tests.
func (b *Broker) writeCertificates(keyStore string) error {
	servers, err := certs.New("deltabridge test brokers")
	if err != nil {
		return err
	}
	clients, err := certs.New("deltabridge test clients")
	if err != nil {
		return err
	}
	cert, key, err := servers.Issue(certs.Options{Name: "broker", Hosts: []string{"127.0.0.1", "localhost"}})
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(b.CAFile(), servers.PEM(), 0o644),
		clients.Save(b.clientsFile()),
		os.WriteFile(filepath.Join(b.dir, "clients-ca.pem"), clients.PEM(), 0o644),
		os.WriteFile(keyStore, append(key, cert...), 0o600),
	)
}
