package natsconn

import (
	"cmp"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// tlsSection is the configuration key of a sink's TLS settings.
const tlsSection = "nats.tls"

// connectTimeout is the timeout for connecting to one server, which includes TCP, TLS and the server's greeting. The
// timeout for TCP alone is reach.Timeout.
const connectTimeout = 5 * time.Second

// Access configures how to connect to NATS servers.
type Access struct {
	// The URL of the server. Separate several servers of one cluster with commas. The schemes are `nats`, `tls`, `ws`
	// and `wss`.
	URLs []string `yaml:"url"     format:"commas" example:"nats://nats-0:4222,nats://nats-1:4222"`
	Auth `         yaml:",inline"`
	// TLS settings. TLS is enabled if a key is set here, or if the scheme of `url` is `tls` or `wss`.
	TLS access.TLS `yaml:"tls"`
	// The JetStream domain of the stream. Set it if `url` is a leaf node, and the stream is on the servers behind it.
	Domain string `yaml:"domain" example:"hub"`
	// The prefix of the JetStream API. Set it if the user's account imports the API of another account under a prefix. Set
	// at most one of `domain` and `apiPrefix`.
	APIPrefix string `yaml:"apiPrefix" example:"JS.streams.API"`
	// The prefix of the subjects on which the bridge receives answers. Set it if the user may not subscribe to `_INBOX.>`.
	InboxPrefix string `yaml:"inboxPrefix" default:"_INBOX" example:"_INBOX_bridge"`

	// ConnectionName is the name of the connection, which the monitoring of the server shows.
	ConnectionName string
	// Timeout is the timeout of every request, and of connecting to one server.
	Timeout time.Duration
}

// Validate reports invalid URLs and keys that exclude each other.
func (a *Access) Validate(at *strictyaml.Section) {
	for _, raw := range a.URLs {
		if addr, problem, remedy := ParseURL(raw); problem != "" {
			at.Report("url", problem, remedy)
		} else {
			at.Address("url", addr, true, remedy)
		}
	}
	at.AtMostOne("credentialsFile", "nkeyFile", "tokenFile", "user")
	at.Together("user", "passwordFile")
	a.TLS.Validate(at.At("tls"))
	at.AtMostOne("domain", "apiPrefix")
	for key, text := range map[string]string{
		"domain":    strings.ReplaceAll(a.Domain, ".", "*"), // a single token
		"apiPrefix": a.APIPrefix, "inboxPrefix": a.InboxPrefix,
	} {
		if len(at.Given(key)) > 0 && !literal.MatchString(text) {
			at.Report(key, "is not valid in a subject", "")
		}
	}
}

// literal matches subjects without wildcards.
var literal = regexp.MustCompile(`^[^\s.*>]+(\.[^\s.*>]+)*$`)

// defaultAPI is the prefix of the JetStream API of the user's account, in the domain of the server.
const defaultAPI = "$JS.API"

// API returns the prefix of the subjects of the JetStream API, without the last dot.
func (a *Access) API() string {
	if a.Domain != "" {
		return "$JS." + a.Domain + ".API"
	}
	return cmp.Or(a.APIPrefix, defaultAPI)
}

// Inbox returns the prefix of the subjects of answers, without the last dot.
func (a *Access) Inbox() string { return cmp.Or(a.InboxPrefix, "_INBOX") }

// Route returns the prefix to add to a subject when publishing to it. Messages to buckets pass from one domain or
// account to another only under the prefix of the API.
func (a *Access) Route(subject string) string {
	if strings.HasPrefix(subject, "$KV.") && a.API() != defaultAPI {
		return a.API() + "."
	}
	return ""
}

// jetStream returns the API of JetStream over a connection.
func (a *Access) jetStream(conn *natsgo.Conn) (jetstream.JetStream, error) {
	return jetstream.NewWithAPIPrefix(conn, a.API())
}

// ParseURL returns the address of a server as host:port, or a problem with the URL. The problem never contains
// credentials.
func ParseURL(raw string) (addr, problem, remedy string) {
	if strings.Contains(raw, "@") {
		return "", "contains credentials, which must be in files",
			"remove everything before the @, and use user and passwordFile, tokenFile, nkeyFile or credentialsFile"
	}
	u, addr, err := serverAddress(raw)
	remedy = "write it as nats://host:4222; separate several by commas"
	switch {
	case err != nil || u.Host == "" || !strings.Contains(raw, "://"):
		problem = strictyaml.Quote(raw) + " is not the URL of a server"
	case !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme):
		problem, remedy = strictyaml.Quote(u.Scheme)+" is not a NATS URL scheme", "write nats, tls, ws or wss"
	case strings.Trim(u.Path, "/") != "" && !strings.HasPrefix(u.Scheme, "ws") || u.RawQuery != "" || u.Fragment != "":
		problem = strictyaml.Quote(raw) + " has more than scheme, host and port"
	}
	return addr, problem, remedy
}

// CheckFiles returns the files with certificates and secrets. The error is about the first file that can't be read or
// parsed.
func (a *Access) CheckFiles() ([]string, error) {
	c, _ := a.Auth.read() // the file is set even if read fails
	files := slices.DeleteFunc(append(a.TLS.Files(), c.file), func(file string) bool { return file == "" })
	_, _, err := a.options()
	return files, err
}

// options checks the files with certificates and secrets, and returns the nats.go options for authentication, TLS and
// inboxes.
// With these options, nats.go reads the files again for every handshake.
func (a *Access) options() ([]natsgo.Option, *access.Session, error) {
	session, err := a.TLS.NewSession(tlsSection)
	if err != nil {
		return nil, nil, err
	}
	c, err := a.Auth.read()
	if err != nil {
		return nil, nil, err
	}
	options := []natsgo.Option{c.option, natsgo.CustomInboxPrefix(a.Inbox())}
	if !a.TLS.IsSet() && strings.HasPrefix(a.URLs[0], "ws:") { // with o.TLSConfig, nats.go would require TLS
		return options, session, nil
	}
	config, err := session.Config("") // nats.go sets the host
	return append(options, func(o *natsgo.Options) error {
		o.TLSConfig, o.RootCAsCB = config, session.RootCAs
		o.Secure = o.Secure || a.TLS.IsSet()
		return nil
	}), session, err
}

// addresses returns the addresses of servers as host:port. It ignores invalid URLs.
func addresses(urls []string) []string {
	out := make([]string, 0, len(urls))
	for _, raw := range urls {
		if _, addr, err := serverAddress(raw); err == nil {
			out = append(out, addr)
		}
	}
	return out
}

// serverAddress parses the URL of a server. It also returns the address as host:port, with the default port of the
// scheme if the URL has none.
func serverAddress(raw string) (*url.URL, string, error) {
	if !strings.Contains(raw, "://") { // as nats.go does
		raw = "nats://" + raw
	}
	u, err := url.Parse(strings.TrimSpace(raw))
	if err != nil {
		return nil, "", err
	}
	port := cmp.Or(u.Port(), map[string]string{"ws": "80", "wss": "443"}[u.Scheme], "4222")
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
	case strings.HasPrefix(subject, a.Inbox()+"."):
		e.Remedy += "subscribe to " + a.Inbox() + ".>, or set nats.inboxPrefix"
	case strings.HasPrefix(subject, "$"), strings.HasPrefix(subject, a.API()+"."):
		e.Remedy += "publish to " + subject
	default:
		e.Key = "nats.subject"
		e.Remedy += "publish to " + wildcard + ", or change nats.subject"
	}
	return e
}
