package natsconn

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// tlsSection is where the configuration of a sink has its TLS.
const tlsSection = "nats.tls"

// connectTimeout is for one server: TCP, TLS and the greeting; TCP alone has reach.Timeout.
const connectTimeout = 5 * time.Second

// Access is how the servers of one cluster are reached.
type Access struct {
	URLs []string // as in nats://host:4222, tls://host:4222 or wss://host
	Auth Auth
	TLS  access.TLS // TLS is used if it is set, or if a URL's scheme is tls or wss
	// Timeout bounds each request, and how long one server may take to connect.
	Timeout time.Duration
}

// CheckFiles returns the files with certificates and secrets. The error is about the first that can't be read or
// parsed.
func (a *Access) CheckFiles() (files []string, err error) {
	secret, err := a.Auth.read()
	files = slices.DeleteFunc(append(a.TLS.Files(), secret.file), func(file string) bool { return file == "" })
	if _, err := a.TLS.NewSession(tlsSection); err != nil {
		return files, err
	}
	return files, err
}

// options returns the options for authentication and TLS. They let nats.go read the files again at each handshake.
func (a *Access) options(session *access.Session) ([]natsgo.Option, error) {
	opts, err := a.Auth.options()
	if err != nil {
		return nil, err
	}
	if !a.TLS.IsSet() && strings.HasPrefix(a.URLs[0], "ws:") { // nats.go would take them as a request for TLS
		return opts, nil
	}
	config, err := session.Config("") // nats.go fills in the host
	if err != nil {
		return nil, err
	}
	return append(opts, func(o *natsgo.Options) error {
		o.TLSConfig, o.RootCAsCB = config, session.RootCAs
		o.Secure = o.Secure || a.TLS.IsSet()
		return nil
	}), nil
}

// addresses returns host:port of the servers.
func addresses(urls []string) []string {
	out := make([]string, 0, len(urls))
	for _, raw := range urls {
		if _, addr, err := ServerAddress(raw); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// ServerAddress returns the URL of a server, and host:port with the default port of its scheme.
func ServerAddress(raw string) (*url.URL, string, error) {
	if !strings.Contains(raw, "://") { // as nats.go does
		raw = "nats://" + raw
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, "", err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"ws": "80", "wss": "443"}[u.Scheme]
	}
	if port == "" {
		port = "4222"
	}
	return u, net.JoinHostPort(u.Hostname(), port), nil
}

// Denied returns the error of a permission violation. doing says what it prevented; wildcard matches all subjects that
// the bridge publishes to.
func (a *Access) Denied(doing string, err error, wildcard string) *sinks.ConnectError {
	words := strings.TrimPrefix(err.Error(), natsgo.ErrPermissionViolation.Error()+": ")
	e := &sinks.ConnectError{Step: sinks.StepAuthorize, Err: access.Words(err, "%s: %s", doing, words), Rejected: true}
	_, rest, _ := strings.Cut(words, ` to "`)
	subject, _, _ := strings.Cut(rest, `"`)
	switch {
	case strings.HasPrefix(subject, "_INBOX."):
		e.Remedy = "let " + a.Auth.Who() + " subscribe to _INBOX.>, on the server"
	case strings.HasPrefix(subject, "$"):
		e.Remedy = "let " + a.Auth.Who() + " publish to " + subject + ", on the server"
	default:
		e.Key = "nats.subject"
		e.Remedy = "let " + a.Auth.Who() + " publish to " + wildcard + ", on the server, or change nats.subject"
	}
	return e
}
