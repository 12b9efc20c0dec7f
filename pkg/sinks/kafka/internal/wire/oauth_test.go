package wire

import (
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
	"github.com/deltabridge/deltabridge/test/certs"
	testkafka "github.com/deltabridge/deltabridge/test/kafka"
)

// The client that a tokenEndpoint knows. The secret has characters that must be encoded.
const (
	clientName   = "bridge"
	clientSecret = "right/s3cret+=%"
)

// tokenEndpoint issues access tokens for client credentials.
type tokenEndpoint struct {
	*httptest.Server
	token    func() string
	life     atomic.Int64 // of a token, in seconds
	away     atomic.Bool  // reports whether it answers only with errors
	requests atomic.Int32
}

func (e *tokenEndpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.requests.Add(1)
	answer := func(code int, body map[string]any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(body)
	}
	id, secret, ok := r.BasicAuth()
	if secret, _ = url.QueryUnescape(secret); !ok {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	switch {
	case r.URL.Path == "/moved":
		http.Redirect(w, r, "/token", http.StatusTemporaryRedirect)
	case r.URL.Path != "/token":
		_, _ = w.Write([]byte("<html>s3cret</html>"))
	case e.away.Load():
		answer(http.StatusServiceUnavailable, nil)
	case id != clientName || secret != clientSecret || r.FormValue("grant_type") != "client_credentials" ||
		r.FormValue("scope") != "read write":
		answer(http.StatusUnauthorized, map[string]any{
			"error": "invalid_client", "error_description": "the secret " + secret + " is wrong",
		})
	default:
		answer(http.StatusOK, map[string]any{
			"access_token": e.token(), "token_type": "Bearer", "expires_in": e.life.Load(),
		})
	}
}

// config returns the configuration of a client of the endpoint.
func (e *tokenEndpoint) config(secretFile, caFile string) *OAuth {
	return &OAuth{
		TokenURL: e.URL + "/token", ClientID: clientName, ClientSecretFile: secretFile, CAFile: caFile,
		Scopes: []string{"read", "write"},
	}
}

// newTokenEndpoint starts a token endpoint, with TLS if a is not nil.
func newTokenEndpoint(t *testing.T, a *certs.Authority, token func() string) *tokenEndpoint {
	t.Helper()
	e := &tokenEndpoint{token: token}
	e.life.Store(3600)
	e.Server = httptest.NewUnstartedServer(e)
	e.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0) // It reports failed handshakes.
	if a == nil {
		e.Start()
	} else {
		cert, key, err := a.Issue(certs.Options{Name: "endpoint", Hosts: []string{"127.0.0.1"}})
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		e.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
		e.StartTLS()
	}
	t.Cleanup(e.Close)
	return e
}

func mustToken(t *testing.T, b *testkafka.Broker, subject, audience string, life time.Duration) string {
	t.Helper()
	token, err := b.Token(subject, audience, time.Now().Add(life))
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestOAuth: a real broker takes tokens from a file and from a token endpoint. Everything else is an error that names
// the broker, the cause and the key, repeats no secret, and is Rejected if a server has answered.
func TestOAuth(t *testing.T) {
	broker := testkafka.ForTest(t)
	authority, caFile := otherAuthority(t)
	good := mustToken(t, broker, "alice", testkafka.Audience, time.Hour)
	endpoint := newTokenEndpoint(t, authority, func() string { return good })
	plain := newTokenEndpoint(t, nil, func() string { return good })
	opaque := newTokenEndpoint(t, authority, func() string { return "s3cret" })
	right, wrong := passwordFile(t, clientSecret+"\n"), passwordFile(t, "wr0ng-s3cret")
	file := func(subject, audience string, life time.Duration) *OAuth {
		return &OAuth{TokenFile: passwordFile(t, mustToken(t, broker, subject, audience, life)+"\n")}
	}
	at := func(path string) *OAuth {
		o := endpoint.config(right, caFile)
		o.TokenURL = strings.Replace(path, "URL", endpoint.URL, 1)
		return o
	}
	extended := file("alice", testkafka.Audience, time.Hour)
	extended.Extensions = map[string]string{"logicalCluster": "lkc-1", "identityPoolId": "pool-1"}
	reserved := file("alice", testkafka.Audience, time.Hour)
	reserved.Extensions = map[string]string{"auth": "x"}
	const (
		trust    = "; check that the broker trusts the issuer of the token and expects its audience, and check the clock (see kafka.sasl.oauth)"
		rejected = "kafka broker ADDR: authenticate: the broker rejected the credentials of "
	)
	for _, c := range []struct {
		name     string
		oauth    *OAuth
		rejected bool
		want     *blamed // nil: it connects
	}{
		{"token file", file("alice", testkafka.Audience, time.Hour), false, nil},
		{"extensions", extended, false, nil},
		{"client credentials", endpoint.config(right, caFile), false, nil},
		{"client credentials without TLS", plain.config(right, ""), false, nil},
		{
			"expired token", file("alice", testkafka.Audience, -time.Hour), true,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth", rejected + `"alice", whose token expired on DATE, for OAUTHBEARER ({"status":"invalid_token"})` + trust},
		},
		{
			"token for another audience", file("alice", "vault", time.Hour), true,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth", rejected + `"alice", whose token expires on DATE, for OAUTHBEARER ({"status":"invalid_token"})` + trust},
		},
		{
			"not a token", &OAuth{TokenFile: wrong}, true,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth", rejected + `the owner of the token for OAUTHBEARER ({"status":"invalid_token"})` + trust},
		},
		{
			"token of another issuer", opaque.config(right, caFile), true,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth", rejected + `client "bridge" for OAUTHBEARER ({"status":"invalid_token"})` + trust},
		},
		{
			"reserved extension", reserved, true, nil,
		},
		{
			"no file", &OAuth{TokenFile: filepath.Join(t.TempDir(), "gone")}, false,
			&blamed{sinks.StepFiles, "kafka.sasl.oauth.tokenFile", "kafka broker ADDR: files: open gone: no such file or directory; mount the file, or correct kafka.sasl.oauth.tokenFile"},
		},
		{
			"wrong secret", endpoint.config(wrong, caFile), true,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth.clientSecretFile", "kafka broker ADDR: authenticate: token endpoint HOST: it answers 401 Unauthorized invalid_client the secret *** is wrong; check clientId, scopes, and the content of kafka.sasl.oauth.clientSecretFile"},
		},
		{
			"another page", at("URL/"), true,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth.tokenUrl", "kafka broker ADDR: authenticate: token endpoint HOST: the response contains no token (oauth2: cannot parse json: invalid character '<' looking for beginning of value); correct kafka.sasl.oauth.tokenUrl"},
		},
		{
			"redirected", at("URL/moved"), true,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth.clientSecretFile", "kafka broker ADDR: authenticate: token endpoint HOST: it answers 307 Temporary Redirect; check clientId, scopes, and the content of kafka.sasl.oauth.clientSecretFile"},
		},
		{
			"nobody there", at("https://127.0.0.1:1/token"), false,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth.tokenUrl", "kafka broker ADDR: authenticate: token endpoint 127.0.0.1:1: nothing listens there (connection refused); start it, or correct the port in kafka.sasl.oauth.tokenUrl"},
		},
		{
			"unknown host", at("https://idp.invalid/token"), false,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth.tokenUrl", `kafka broker ADDR: authenticate: token endpoint idp.invalid: there is no host "idp.invalid"; correct the name in kafka.sasl.oauth.tokenUrl, or the DNS record`},
		},
		{
			"system authorities", endpoint.config(right, ""), false,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth.caFile", `kafka broker ADDR: authenticate: token endpoint HOST: its certificate is signed by "CN=another authority": tls: failed to verify certificate: x509: certificate signed by unknown authority; add the certificate of that CA to kafka.sasl.oauth.caFile`},
		},
		{
			"silence", at("https://" + silent(t) + "/token?client_secret=s3cret"), false,
			&blamed{sinks.StepAuthenticate, "kafka.sasl.oauth.tokenUrl", "kafka broker ADDR: authenticate: token endpoint HOST: no answer within 500ms; check kafka.sasl.oauth.tokenUrl, and check that no firewall or NetworkPolicy blocks the connection"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{
				Brokers: []string{broker.SASLTLSAddr()}, TLS: access.TLS{CAFile: broker.CAFile()},
				SASL: SASL{Mechanism: "OAUTHBEARER", OAuth: c.oauth}, RequestTimeout: 10 * time.Second,
			}
			if c.name == "silence" {
				cfg.RequestTimeout = time.Second
			}
			_, err := newClient(t, cfg).Topics(t.Context())
			if sinks.IsRejected(err) != c.rejected {
				t.Errorf("Rejected is %t: %v", !c.rejected, err)
			}
			if c.want == nil {
				if (err != nil) != c.rejected {
					t.Error(err)
				}
				return
			}
			got := blame(t, err, cfg.Brokers[0])
			u, _ := url.Parse(c.oauth.TokenURL)
			if u.Port() != "1" && u.Port() != "" {
				got.Text = strings.ReplaceAll(got.Text, u.Host, "HOST")
			}
			if diff := cmp.Diff(*c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), good) {
				t.Errorf("it repeats a secret: %v", err)
			}
		})
	}
}

// TestRotatedToken: a token that is renewed in its file is used without a restart, and a wrong one stops nothing that
// works.
func TestRotatedToken(t *testing.T) {
	broker := testkafka.ForTest(t)
	file := passwordFile(t, mustToken(t, broker, "first", testkafka.Audience, time.Hour))
	r := newRotating(t, Config{
		Brokers: []string{broker.SASLAddr()}, SASL: SASL{Mechanism: "OAUTHBEARER", OAuth: &OAuth{TokenFile: file}},
	})
	r.send(t)
	r.expect(t, "nothing changed", r.send(t), 0)
	overwrite(t, file, "wr0ng-secret")
	r.expect(t, "a wrong token", r.send(t), 1)
	if log := r.log.String(); !strings.Contains(log, "rotated TLS or SASL files rejected") ||
		strings.Contains(log, "wr0ng") {
		t.Errorf("log:\n%s", log)
	}
	overwrite(t, file, mustToken(t, broker, "second", testkafka.Audience, time.Hour))
	r.expect(t, "the new token", r.send(t), 1)
	r.expect(t, "nothing changed since", r.send(t), 0)
}

// TestRejectedToken: a token that the broker rejects is not used again, although it has not expired.
func TestRejectedToken(t *testing.T) {
	broker := testkafka.ForTest(t)
	var endpoint *tokenEndpoint
	endpoint = newTokenEndpoint(t, nil, func() string {
		if endpoint.requests.Load() == 1 {
			return "revoked"
		}
		return mustToken(t, broker, "alice", testkafka.Audience, time.Hour)
	})
	c := newClient(t, Config{Brokers: []string{broker.SASLAddr()}, SASL: SASL{
		Mechanism: "OAUTHBEARER", OAuth: endpoint.config(passwordFile(t, clientSecret), ""),
	}})
	if _, err := c.Topics(t.Context()); !sinks.IsRejected(err) {
		t.Errorf("a wrong token: %v", err)
	}
	waitUntil(t, func() bool { _, err := c.Topics(t.Context()); return err == nil })
	if n := endpoint.requests.Load(); n != 2 {
		t.Errorf("%d tokens", n)
	}
}

// TestSessionEndsWithTheToken: the broker ends a session with its token. The client replaces the connection before
// that, with a new token, and no request fails.
func TestSessionEndsWithTheToken(t *testing.T) {
	broker := testkafka.ForTest(t)
	endpoint := newTokenEndpoint(t, nil, func() string {
		return mustToken(t, broker, "alice", testkafka.Audience, 3*time.Second) // a fraction of a second is lost
	})
	endpoint.life.Store(2)
	r := newRotating(t, Config{Brokers: []string{broker.SASLAddr()}, SASL: SASL{
		Mechanism: "OAUTHBEARER", OAuth: endpoint.config(passwordFile(t, clientSecret), ""),
	}})
	waitUntil(t, func() bool { r.send(t); return r.dials.Load() >= 3 })
	if requests := endpoint.requests.Load(); requests != r.dials.Load() {
		t.Errorf("%d tokens for %d connections", requests, r.dials.Load())
	}
}

// TestTokenIsShared: connections share a token until three quarters of its lifetime have passed. A failed renewal does
// no harm before the token expires, and is tried once for all brokers. A rejected token and another client secret are
// reasons for a new one.
func TestTokenIsShared(t *testing.T) {
	endpoint := newTokenEndpoint(t, nil, nil)
	endpoint.token = func() string { return strings.Repeat("t", int(endpoint.requests.Load())) }
	secret := passwordFile(t, clientSecret)
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, Config{SASL: SASL{Mechanism: "OAUTHBEARER", OAuth: endpoint.config(secret, "")}})
		expect := func(when string, wait time.Duration, token, requests int, failed bool) {
			t.Helper()
			<-time.After(wait)
			got, err := c.token(t.Context())
			if (err != nil) != failed || err == nil && len(got) != token || int(endpoint.requests.Load()) != requests {
				t.Errorf("%s: token %d after %d requests, %v", when, len(got), endpoint.requests.Load(), err)
			}
		}
		expect("the first", 0, 1, 1, false)
		expect("before three quarters", 44*time.Minute, 1, 1, false)
		expect("after three quarters", 2*time.Minute, 2, 2, false)
		endpoint.away.Store(true)
		expect("it cannot be renewed", 50*time.Minute, 2, 3, false)
		expect("another connection", 0, 2, 3, false)
		expect("it has expired", 11*time.Minute, 0, 4, true)
		expect("another broker", 100*time.Millisecond, 0, 4, true)
		endpoint.away.Store(false)
		expect("the endpoint is back", time.Second, 5, 5, false)
		c.tokens.discard()
		expect("rejected", time.Second, 6, 6, false)
		if err := os.WriteFile(secret, []byte("another"), 0o600); err != nil {
			t.Fatal(err)
		}
		expect("a wrong secret", 0, 6, 7, false)
		endpoint.life.Store(0)
		overwrite(t, secret, clientSecret)
		expect("a token without lifetime", time.Second, 8, 8, false)
		expect("the next connection", time.Second, 9, 9, false)
	})
}
