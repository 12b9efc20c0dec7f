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

// tlsSection is the configuration key of a sink's TLS settings.
const tlsSection = "nats.tls"

// connectTimeout is the timeout for connecting to one server, which includes TCP, TLS and the server's greeting. The
// timeout for TCP alone is reach.Timeout.
const connectTimeout = 5 * time.Second

// Access configures how to connect to the servers of one cluster.
type Access struct {
	URLs []string // for example nats://host:4222, tls://host:4222 or wss://host
	Auth Auth
	TLS  access.TLS // used if it is set, or if the scheme of a URL is tls or wss
	// Timeout is the timeout of every request, and of connecting to one server.
	Timeout time.Duration
}

// CheckFiles returns the files with certificates and secrets. The error is about the first file that can't be read or
// parsed.
func (a *Access) CheckFiles() (files []string, err error) {
	secret, err := a.Auth.read()
	files = slices.DeleteFunc(append(a.TLS.Files(), secret.file), func(file string) bool { return file == "" })
	if _, err := a.TLS.NewSession(tlsSection); err != nil {
		return files, err
	}
	return files, err
}

// options returns the nats.go options for authentication and TLS. With these options, nats.go reads the files again for
// every handshake.
func (a *Access) options(session *access.Session) ([]natsgo.Option, error) {
	opts, err := a.Auth.options()
	if err != nil {
		return nil, err
	}
	if !a.TLS.IsSet() && strings.HasPrefix(a.URLs[0], "ws:") { // with o.TLSConfig, nats.go would require TLS
		return opts, nil
	}
	config, err := session.Config("") // nats.go sets the host
	if err != nil {
		return nil, err
	}
	return append(opts, func(o *natsgo.Options) error {
		o.TLSConfig, o.RootCAsCB = config, session.RootCAs
		o.Secure = o.Secure || a.TLS.IsSet()
		return nil
	}), nil
}

// addresses returns the addresses of the servers as host:port.
func addresses(urls []string) []string {
	out := make([]string, 0, len(urls))
	for _, raw := range urls {
		if _, addr, err := ServerAddress(raw); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// ServerAddress parses the URL of a server. It also returns the address as host:port, with the default port of the
// scheme if the URL has none.
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

// Denied returns the error for a permission violation. doing describes the failed operation. wildcard matches all
// subjects that the bridge publishes to.
func (a *Access) Denied(doing string, err error, wildcard string) *sinks.ConnectError {
	words := strings.TrimPrefix(err.Error(), natsgo.ErrPermissionViolation.Error()+": ")
	_, rest, _ := strings.Cut(words, ` to "`)
	subject, _, _ := strings.Cut(rest, `"`)
	e := &sinks.ConnectError{Step: sinks.StepAuthorize, Err: access.Words(err, "%s: %s", doing, words), Rejected: true}
	e.Remedy = "on the server, allow " + a.Auth.Who() + " to "
	switch {
	case strings.HasPrefix(subject, "_INBOX."):
		e.Remedy += "subscribe to _INBOX.>"
	case strings.HasPrefix(subject, "$"):
		e.Remedy += "publish to " + subject
	default:
		e.Key = "nats.subject"
		e.Remedy += "publish to " + wildcard + ", or change nats.subject"
	}
	return e
}
