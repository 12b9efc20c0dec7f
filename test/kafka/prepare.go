package kafka

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
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
type ports struct{ plain, sasl, tls, controller int }

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// prepare fills the broker's folder: ports, certificate, configuration, formatted storage. What is there stays.
func (b *Broker) prepare(ctx context.Context) error {
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	portsFile := filepath.Join(b.dir, "ports")
	text, err := os.ReadFile(portsFile)
	formatted := err == nil
	if formatted {
		if _, err := fmt.Sscan(string(text), &b.ports.plain, &b.ports.sasl, &b.ports.tls, &b.ports.controller); err != nil {
			return fmt.Errorf("reading %s: %w", portsFile, err)
		}
	} else if b.ports, err = freePorts(); err != nil {
		return err
	}
	if err := b.writeFiles(); err != nil || formatted {
		return err
	}
	err = b.run(ctx, "kafka.tools.StorageTool", "format", "--cluster-id", clusterID,
		"--config", filepath.Join(b.dir, "server.properties"),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", User, Password),
		"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", User, Password))
	if err != nil {
		return err
	}
	// Last, for it says that the folder is complete.
	return os.WriteFile(portsFile,
		fmt.Appendln(nil, b.ports.plain, b.ports.sasl, b.ports.tls, b.ports.controller), 0o644)
}

func (b *Broker) writeFiles() error {
	keyStore := filepath.Join(b.dir, "broker.pem")
	if _, err := os.Stat(keyStore); err != nil {
		if err := writeCertificate(keyStore, b.CAFile()); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(b.dir, "log4j2.xml"), []byte(logConfig), 0o644); err != nil {
		return err
	}
	lines := append(b.serverProperties(keyStore), b.properties...)
	return os.WriteFile(filepath.Join(b.dir, "server.properties"), []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}

func (b *Broker) serverProperties(keyStore string) []string {
	listeners := fmt.Sprintf("PLAINTEXT://%s,SASL_PLAINTEXT://%s,SSL://%s", b.Addr(), b.SASLAddr(), b.TLSAddr())
	controller := address(b.ports.controller)
	jaas := "listener.name.sasl_plaintext.%s.sasl.jaas.config=org.apache.kafka.common.security.%s required%s;"
	return []string{
		"process.roles=broker,controller",
		"node.id=1",
		"controller.quorum.voters=1@" + controller,
		"controller.listener.names=CONTROLLER",
		"listeners=" + listeners + ",CONTROLLER://" + controller,
		"advertised.listeners=" + listeners,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
		"inter.broker.listener.name=PLAINTEXT",
		"log.dirs=" + filepath.Join(b.dir, "data"),

		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		fmt.Sprintf(jaas, "plain", "plain.PlainLoginModule", fmt.Sprintf(" user_%s=%q", User, Password)),
		fmt.Sprintf(jaas, "scram-sha-256", "scram.ScramLoginModule", ""),
		fmt.Sprintf(jaas, "scram-sha-512", "scram.ScramLoginModule", ""),
		"ssl.keystore.type=PEM",
		"ssl.keystore.location=" + keyStore,

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
		"num.network.threads=2",
		"num.io.threads=2",
		// Compaction soon after there is something to compact. The buffer's default is 128 MiB of heap.
		"log.cleaner.dedupe.buffer.size=4194304",
		"log.cleaner.backoff.ms=200",
	}
}

// freePorts finds ports below the range from which the kernel takes those of outgoing connections: while the
// broker is down, nobody else gets its port, and a client that dials it does not connect to itself.
func freePorts() (ports, error) {
	var found []int
	for range 1000 {
		port := 15000 + mathrand.IntN(15000)
		if slices.Contains(found, port) {
			continue
		}
		l, err := net.Listen("tcp", address(port))
		if err != nil {
			continue
		}
		if err := l.Close(); err != nil {
			return ports{}, err
		}
		if found = append(found, port); len(found) == 4 {
			return ports{found[0], found[1], found[2], found[3]}, nil
		}
	}
	return ports{}, errors.New("no free ports between 15000 and 30000")
}

// writeCertificate makes a self-signed certificate for 127.0.0.1: key and certificate for the broker, the
// certificate alone, as a CA, for clients.
func writeCertificate(keyStore, caFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "deltabridge test broker"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	if err := os.WriteFile(caFile, certPEM, 0o644); err != nil {
		return err
	}
	return os.WriteFile(keyStore, append(keyPEM, certPEM...), 0o600)
}
