package registry

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

const (
	lookup   = "POST /api/subjects/k8s.pods-value"
	register = "POST /api/subjects/k8s.pods-value/versions"
	types    = "GET /api/schemas/types"
)

type answer struct {
	status int
	body   string
}

var unknown = answer{404, `{"error_code":40401,"message":"Subject 'k8s.pods-value' not found."}`}

// serve returns a client of a server that gives these answers, and 404 as a server that is no registry.
func serve(t *testing.T, answers map[string]answer) (c *Client, address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, known := answers[r.Method+" "+r.URL.EscapedPath()]
		if !known {
			a.status = http.StatusNotFound
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body) // fails if the client has gone
	}))
	t.Cleanup(server.Close)
	c = &Client{Config: Config{URL: server.URL + "/api/", Format: FormatAvro}, Timeout: 2 * time.Minute}
	return c, server.Listener.Addr().String()
}

func TestRegister(t *testing.T) {
	const found = `{"subject":"k8s.pods-value","id":7,"version":1,"guid":"01020304-0506-0708-090a-0b0c0d0e0f10"}`
	for _, c := range []struct {
		name    string
		answers map[string]answer
	}{
		{"known", map[string]answer{lookup: {200, found}}},
		{"new subject", map[string]answer{lookup: unknown, register: {200, `{"id":7}`}}},
		{"new schema", map[string]answer{lookup: {404, `{"error_code":40403,"message":"Schema not found"}`}, register: {200, `{"id":7}`}}},
	} {
		client, _ := serve(t, c.answers)
		for _, client.Format = range []Format{FormatAvro, FormatJSON} {
			want := "\x00\x00\x00\x00\x07"
			if c.name == "known" && client.Format == FormatJSON {
				want = "\x01\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"
			}
			if id, err := client.Register(t.Context(), "k8s.pods"); id.Encode() != want || err != nil {
				t.Errorf("%s, %s: id %x, %v", c.name, client.Format, id.Encode(), err)
			}
		}
	}
}

// The error of each answer says what to do, and does not contain the password.
func TestErrors(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		answers   map[string]answer
		step, key string
		text      string // a part of the error
		retried   bool   // soon
	}{
		{"unauthorized", map[string]answer{lookup: {401, `{"error_code":401,"message":"Unauthorized"}`}}, sinks.StepAuthenticate, keyPassword, "answers 401 Unauthorized: Unauthorized; check user name and password", false},
		{"read only", map[string]answer{lookup: unknown, register: {403, `{"error_code":40301,"message":"s3cret is denied"}`}}, sinks.StepAuthorize, "", `answers 403 Forbidden: *** is denied; give user "bridge" the permissions to read and write the subject k8s.pods-value, or`, false},
		{"incompatible", map[string]answer{lookup: unknown, register: {409, `{"error_code":409,"message":"Incompatible"}`}}, sinks.StepSchema, "", "answers 409 Conflict: Incompatible; the subject k8s.pods-value has another schema: use another topic", false},
		{"frozen", map[string]answer{lookup: unknown, register: {422, `{"error_code":42205,"message":"Subject k8s.pods-value is in read-only mode"}`}}, sinks.StepSchema, "", "answers 422 Unprocessable Entity: Subject k8s.pods-value is in read-only mode", false},
		{"another server", nil, sinks.StepProtocol, keyURL, "answers 404 Not Found; check that kafka.schemaRegistry.url is the URL of a schema registry", false},
		{"a login page", map[string]answer{lookup: {302, ""}}, sinks.StepProtocol, keyURL, "answers 302 Found; check that", false},
		{"a page", map[string]answer{lookup: {200, "<html>"}}, sinks.StepProtocol, keyURL, "schema registry: unable to decode ok response body", false},
		{"overloaded", map[string]answer{lookup: {503, "later"}}, sinks.StepSchema, "", "answers 503 Service Unavailable", true},
		{"too fast", map[string]answer{lookup: {429, ""}}, sinks.StepSchema, "", "answers 429 Too Many Requests", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, address := serve(t, c.answers)
			client.Username, client.PasswordFile = "bridge", password
			_, err := client.Register(t.Context(), "k8s.pods")
			got := sinktest.Blame(t, err, address)
			named := strings.Contains(got.Text, "ADDR: ")
			if got.Step != c.step || got.Key != c.key || !named || !strings.Contains(got.Text, c.text) {
				t.Errorf("%+v", got)
			}
			if strings.Contains(err.Error(), "s3cret") || sinks.IsRejected(err) == c.retried {
				t.Errorf("contains the password, or rejected: %t", sinks.IsRejected(err))
			}
		})
	}
}

func TestPing(t *testing.T) {
	client, _ := serve(t, map[string]answer{types: {200, `["JSON","AVRO"]`}})
	if err := client.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	client, address := serve(t, map[string]answer{types: {200, `["JSON"]`}})
	got := sinktest.Blame(t, client.Ping(t.Context()), address)
	if got.Step != sinks.StepProtocol || !strings.Contains(got.Text, "it does not support Avro") {
		t.Errorf("%+v", got)
	}
	if client.Format = FormatJSON; client.Ping(t.Context()) != nil {
		t.Error("it supports JSON Schema")
	}
	client.PasswordFile = "missing"
	if got := sinktest.Blame(t, client.Ping(t.Context()), ""); got.Step != sinks.StepFiles || got.Key != keyPassword {
		t.Errorf("%+v", got)
	}
}

// A registry that does not answer, does not listen, or has a certificate of another CA.
func TestUnreachable(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	hanging := &Client{Config: Config{URL: server.URL, Format: FormatAvro}, Timeout: 50 * time.Millisecond}
	got := sinktest.Blame(t, hanging.Ping(t.Context()), server.Listener.Addr().String())
	slow := strings.Contains(got.Text, "ADDR: connect: no answer within 50ms")
	if got.Step != sinks.StepConnect || got.Key != keyURL || !slow {
		t.Errorf("%+v", got)
	}

	secure := httptest.NewTLSServer(nil)
	t.Cleanup(secure.Close)
	client := &Client{Config: Config{URL: secure.URL, Format: FormatAvro}, Timeout: 2 * time.Minute}
	got = sinktest.Blame(t, client.Ping(t.Context()), secure.Listener.Addr().String())
	if got.Step != sinks.StepTLS || got.Key != tlsSection+".caFile" {
		t.Errorf("%+v", got)
	}

	const address = "127.0.0.1:1"
	client.URL = "http://" + address
	got = sinktest.Blame(t, client.Ping(t.Context()), address)
	if got.Step != sinks.StepConnect || got.Key != keyURL || !strings.Contains(got.Text, "nothing listens there") ||
		strings.Contains(got.Text, "broker") {
		t.Errorf("%+v", got)
	}
}
