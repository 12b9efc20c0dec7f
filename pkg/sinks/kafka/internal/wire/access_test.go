package wire

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/test/certs"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// client makes the files of a client certificate that the mutual TLS listener takes, unless a is another authority.
func client(t *testing.T, a *certs.Authority, o certs.Options) access.TLS {
	t.Helper()
	broker := testkafka.ForTest(t)
	if a == nil {
		var err error
		if a, err = broker.ClientCA(); err != nil {
			t.Fatal(err)
		}
	}
	certFile, keyFile, err := a.IssueFiles(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	return access.TLS{CAFile: broker.CAFile(), CertFile: certFile, KeyFile: keyFile}
}

func otherAuthority(t *testing.T) (_ *certs.Authority, file string) {
	t.Helper()
	a, err := certs.New("another authority")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, a.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return a, file
}

// silent accepts connections and says nothing.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// TestAccess: who may connect does, and who may not is told why.
func TestAccess(t *testing.T) {
	broker := testkafka.ForTest(t)
	testkafka.CreateTopic(t, broker.Addr(), "access", 1, nil)
	right, wrong := passwordFile(t, testkafka.Password+"\n"), passwordFile(t, "wr0ng-secret")
	sasl := func(mechanism, user, file string) SASL {
		return SASL{Mechanism: mechanism, Username: user, PasswordFile: file}
	}
	none, tls := access.TLS{}, access.TLS{CAFile: broker.CAFile()}
	other, otherCA := otherAuthority(t)
	for _, c := range []struct {
		name, addr string
		tls        access.TLS
		sasl       SASL
		want       *blamed // nil: it connects
	}{
		{"plaintext", broker.Addr(), none, SASL{}, nil},
		{"PLAIN", broker.SASLAddr(), none, sasl("PLAIN", testkafka.User, right), nil},
		{"SCRAM-SHA-256", broker.SASLAddr(), none, sasl("SCRAM-SHA-256", testkafka.User, right), nil},
		{"SCRAM-SHA-512", broker.SASLAddr(), none, sasl("SCRAM-SHA-512", testkafka.User, right), nil},
		{"TLS", broker.TLSAddr(), tls, SASL{}, nil},
		{"mutual TLS", broker.MutualTLSAddr(), client(t, nil, certs.Options{Name: "bridge"}), SASL{}, nil},
		{"SASL over TLS", broker.SASLTLSAddr(), tls, sasl("SCRAM-SHA-512", testkafka.User, right), nil},

		{
			"PLAIN, wrong password", broker.SASLAddr(), none, sasl("PLAIN", testkafka.User, wrong),
			&blamed{sinks.StepAuthenticate, "kafka.sasl.passwordFile", `kafka broker ADDR: authenticate: the broker rejected the credentials of user "alice" for PLAIN (Authentication failed: Invalid username or password); check kafka.sasl.username and the content of kafka.sasl.passwordFile`},
		},
		{
			"SCRAM, wrong password", broker.SASLTLSAddr(), tls, sasl("SCRAM-SHA-512", testkafka.User, wrong),
			&blamed{sinks.StepAuthenticate, "kafka.sasl.passwordFile", `kafka broker ADDR: authenticate: the broker rejected the credentials of user "alice" for SCRAM-SHA-512 (Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512); check kafka.sasl.username and the content of kafka.sasl.passwordFile`},
		},
		{
			"SCRAM, unknown user", broker.SASLAddr(), none, sasl("SCRAM-SHA-256", "bob", right),
			&blamed{sinks.StepAuthenticate, "kafka.sasl.passwordFile", `kafka broker ADDR: authenticate: the broker rejected the credentials of user "bob" for SCRAM-SHA-256 (Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256); check kafka.sasl.username and the content of kafka.sasl.passwordFile`},
		},
		{
			"a mechanism that the broker has not", broker.SASLAddr(), none,
			SASL{Mechanism: "AWS_MSK_IAM", Region: "eu-central-1"},
			&blamed{sinks.StepAuthenticate, "kafka.sasl.mechanism", "kafka broker ADDR: authenticate: the broker does not support AWS_MSK_IAM, only OAUTHBEARER, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512; set kafka.sasl.mechanism to one of them"},
		},
		{
			"no SASL where it is demanded", broker.SASLAddr(), none,
			SASL{},
			&blamed{sinks.StepAuthenticate, "kafka.sasl", "kafka broker ADDR: authenticate: the broker closed the connection after the first request, as a listener that requires SASL does; set kafka.sasl.mechanism, username and passwordFile, or connect to the port of another listener"},
		},
		{
			"no SASL where it is demanded, over TLS", broker.SASLTLSAddr(), tls,
			SASL{},
			&blamed{sinks.StepAuthenticate, "kafka.sasl", "kafka broker ADDR: authenticate: the broker closed the connection after the first request, as a listener that requires SASL does; set kafka.sasl.mechanism, username and passwordFile, or connect to the port of another listener"},
		},
		{
			"SASL where there is none", broker.Addr(), none, sasl("PLAIN", testkafka.User, right),
			&blamed{sinks.StepAuthenticate, "kafka.sasl", "kafka broker ADDR: authenticate: this listener does not use SASL; remove kafka.sasl, or connect to the port of the listener that uses it"},
		},
		{
			"TLS to a plaintext port", broker.Addr(), tls,
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls", "kafka broker ADDR: TLS: the server does not respond with TLS; remove kafka.tls, or connect to the port of the TLS listener"},
		},
		{
			"TLS to a SASL port without TLS", broker.SASLAddr(), tls, sasl("PLAIN", testkafka.User, right),
			&blamed{sinks.StepTLS, "kafka.tls", "kafka broker ADDR: TLS: the server does not respond with TLS; remove kafka.tls, or connect to the port of the TLS listener"},
		},
		{
			"plaintext to a TLS port", broker.TLSAddr(), none,
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls", "kafka broker ADDR: TLS: the broker expects TLS, but kafka.tls is not set; set kafka.tls.enabled: true, or connect to the port of the plaintext listener"},
		},
		{
			"SASL in plaintext to a TLS port", broker.SASLTLSAddr(), none, sasl("PLAIN", testkafka.User, right),
			&blamed{sinks.StepTLS, "kafka.tls", "kafka broker ADDR: TLS: the broker expects TLS, but kafka.tls is not set; set kafka.tls.enabled: true, or connect to the port of the plaintext listener"},
		},
		{
			"system authorities", broker.TLSAddr(),
			access.TLS{Enabled: true},
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls.caFile", `kafka broker ADDR: TLS: its certificate is signed by "CN=deltabridge test brokers": tls: failed to verify certificate: x509: certificate signed by unknown authority; add the certificate of that CA to kafka.tls.caFile`},
		},
		{
			"wrong authority", broker.TLSAddr(),
			access.TLS{CAFile: otherCA},
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls.caFile", `kafka broker ADDR: TLS: its certificate is signed by "CN=deltabridge test brokers": tls: failed to verify certificate: x509: certificate signed by unknown authority; add the certificate of that CA to kafka.tls.caFile`},
		},
		{
			"wrong host", broker.TLSAddr(),
			access.TLS{CAFile: broker.CAFile(), ServerName: "kafka.example.com"},
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls.serverName", "kafka broker ADDR: TLS: tls: failed to verify certificate: x509: certificate is valid for localhost, not kafka.example.com; use a host name that is in the certificate, or set kafka.tls.serverName"},
		},
		{
			"no client certificate", broker.MutualTLSAddr(), tls,
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls.certFile", "kafka broker ADDR: TLS: it requires a client certificate; set kafka.tls.certFile and kafka.tls.keyFile"},
		},
		{
			"client certificate of another authority", broker.MutualTLSAddr(), client(t, other, certs.Options{Name: "bridge"}),
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls.certFile", `kafka broker ADDR: TLS: it rejects the client certificate; check that kafka.tls.certFile has not expired, and that the server trusts its CA`},
		},
		{
			"expired client certificate", broker.MutualTLSAddr(), client(t, nil, certs.Options{Name: "bridge", Lifetime: -time.Hour}),
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls.certFile", "kafka broker ADDR: TLS: it rejects the client certificate; check that kafka.tls.certFile has not expired, and that the server trusts its CA"},
		},
		{
			"nobody there", "127.0.0.1:1", none,
			SASL{},
			&blamed{sinks.StepConnect, "kafka.brokers", "kafka broker ADDR: connect: nothing listens there (connection refused); start the broker, or correct the port in kafka.brokers"},
		},
		{
			"unknown host", "broker.invalid:9092", none,
			SASL{},
			&blamed{sinks.StepResolve, "kafka.brokers", `kafka broker ADDR: resolve: there is no host "broker.invalid"; correct the name in kafka.brokers, or the DNS record`},
		},
		{
			"silence", silent(t), none,
			SASL{},
			&blamed{sinks.StepProtocol, "kafka.brokers", "kafka broker ADDR: protocol: no response to the API versions request within 300ms; check that kafka.brokers contains the address of a Kafka broker and that it is not overloaded"},
		},
		{
			"silence for TLS", silent(t), tls,
			SASL{},
			&blamed{sinks.StepTLS, "kafka.tls", "kafka broker ADDR: TLS: no response to the TLS handshake within 300ms; check that the port is a TLS listener, or remove kafka.tls"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			timeout := 10 * time.Second
			if strings.HasPrefix(c.name, "silence") {
				timeout = 300 * time.Millisecond
			}
			client := newClient(t, Config{Brokers: []string{c.addr}, TLS: c.tls, SASL: c.sasl, RequestTimeout: timeout})
			topics, err := client.Topics(t.Context(), "access")
			if c.want == nil {
				if err != nil || len(topics) != 1 || !topics[0].Ready() {
					t.Fatalf("%+v, %v", topics, err)
				}
				return
			}
			got := blame(t, err, c.addr)
			if diff := cmp.Diff(*c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("it repeats the password")
			}
		})
	}
}
