package access

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// TLS configures how a connection is encrypted. The server certificate is always verified.
type TLS struct {
	// Enables TLS. TLS is also enabled if another key of `tls` is set.
	Enabled bool `yaml:"enabled" default:"false" example:"true"`
	// A PEM file with the certificates of the trusted CAs. If it is not set, the CAs of the system are trusted. All files
	// with certificates and keys are read again for every connection.
	CAFile string `yaml:"caFile" format:"file" example:"/etc/deltabridge/tls/ca.crt"`
	// A PEM file with the client certificate. It requires `keyFile`.
	CertFile string `yaml:"certFile" format:"file" example:"/etc/deltabridge/tls/tls.crt"`
	// A PEM file with the private key of `certFile`.
	KeyFile string `yaml:"keyFile" format:"file" example:"/etc/deltabridge/tls/tls.key"`
	// The name that the server certificate must contain. If it is empty, the host of the address is used.
	ServerName string `yaml:"serverName" example:"nats.example.com"`
}

// IsSet reports whether TLS is used, which is the case if any field is set.
func (t *TLS) IsSet() bool { return *t != TLS{} }

// Files returns the configured files. File names that are not configured are empty.
func (t *TLS) Files() []string { return []string{t.CAFile, t.CertFile, t.KeyFile} }

// Validate reports contradictory keys.
func (t *TLS) Validate(at *strictyaml.Section) {
	at.Together("certFile", "keyFile")
	if at.Has("enabled") && !t.Enabled && len(at.Given("caFile", "certFile", "keyFile", "serverName")) > 0 {
		at.Report("enabled", "is false, but other keys of tls are given", "write true, or remove the others")
	}
}

// Session makes TLS handshakes with the current contents of the files. It is safe for concurrent use.
type Session struct {
	tls     TLS
	section string
	asked   atomic.Bool // the server requested a client certificate
}

// NewSession checks that the files can be read and parsed. section is the configuration key of the TLS settings, such
// as "kafka.tls".
func (t *TLS) NewSession(section string) (*Session, error) {
	s := &Session{tls: *t, section: section}
	_, err := s.RootCAs()
	if err == nil {
		_, err = s.certificate()
	}
	return s, err
}

// RootCAs reads CAFile. If CAFile is not set, RootCAs returns nil, which means the CAs of the system.
func (s *Session) RootCAs() (*x509.CertPool, error) {
	if s.tls.CAFile == "" {
		return nil, nil //nolint:nilnil // as in tls.Config
	}
	key := s.section + ".caFile"
	pem, err := os.ReadFile(s.tls.CAFile)
	if err != nil {
		return nil, fileError(key, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fileError(key, fmt.Errorf("no PEM certificate in %s", s.tls.CAFile))
	}
	return pool, nil
}

// certificate reads the client certificate. It is empty if none is configured.
func (s *Session) certificate() (*tls.Certificate, error) {
	if s.tls.CertFile == "" {
		return new(tls.Certificate), nil
	}
	cert, err := tls.LoadX509KeyPair(s.tls.CertFile, s.tls.KeyFile)
	if err != nil {
		key := s.section + ".certFile"
		if path, ok := errors.AsType[*os.PathError](err); ok && path.Path == s.tls.KeyFile {
			key = s.section + ".keyFile"
		}
		return nil, fileError(key, fmt.Errorf("certificate %s and key %s: %w", s.tls.CertFile, s.tls.KeyFile, err))
	}
	return &cert, nil
}

// Config returns the TLS configuration for a handshake with host. It contains the current CAs. The client certificate
// is read during each handshake.
func (s *Session) Config(host string) (*tls.Config, error) {
	roots, err := s.RootCAs()
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           cmp.Or(s.tls.ServerName, host),
		RootCAs:              roots,
		GetClientCertificate: s.clientCertificate,
	}, nil
}

// clientCertificate implements tls.Config.GetClientCertificate. It returns the certificate even if the server does not
// list the issuing CA. Then the server's error is about this certificate and not about a missing one.
func (s *Session) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	s.asked.Store(true)
	return s.certificate()
}

// Handshake performs a TLS handshake over nc with the server at address (host:port). It closes nc if the handshake
// fails.
func (s *Session) Handshake(
	ctx context.Context, nc net.Conn, address string, timeout time.Duration,
) (*tls.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	config, err := s.Config(host)
	if err != nil {
		nc.Close()
		return nil, err
	}
	tc := tls.Client(nc, config)
	if err := tc.HandshakeContext(ctx); err != nil {
		nc.Close()
		if canceled(ctx) {
			return nil, context.Cause(ctx)
		}
		return nil, s.Failure(address, timeout, err)
	}
	return tc, nil
}

// Failure explains why a TLS handshake with address failed. With TLS 1.3, a server rejects a client certificate after
// the handshake. Therefore Failure should also be called for the error of the first read if [Session.Refused] returns
// true for it.
func (s *Session) Failure(address string, timeout time.Duration, err error) error {
	if known, ok := errors.AsType[*sinks.ConnectError](err); ok { // a file could not be read
		return known
	}
	e := &sinks.ConnectError{Step: sinks.StepTLS, Address: address, Key: s.section}
	var untrusted *tls.CertificateVerificationError
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted):
		s.explainUntrusted(e, untrusted)
	case s.Refused(err):
		s.explainRefused(e, err)
	case errors.As(err, &header), Closed(err):
		e.Err = Words(err, "the server does not respond with TLS")
		e.Remedy = "remove " + s.section + ", or connect to the port of the TLS listener"
	case TimedOut(err):
		e.Err = Words(os.ErrDeadlineExceeded, "no response to the TLS handshake within %v", timeout)
		e.Remedy = "check that the port is a TLS listener, or remove " + s.section
	default:
		e.Err = Plain(err)
	}
	return e
}

// explainUntrusted explains why the server certificate is not accepted.
func (s *Session) explainUntrusted(e *sinks.ConnectError, err error) {
	e.Key, e.Err = s.section+".caFile", err
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		e.Err = fmt.Errorf("its certificate is signed by %q: %w", unknown.Cert.Issuer, err)
		e.Remedy = "add the certificate of that CA to " + e.Key
	case errors.As(err, &host):
		e.Key = s.section + ".serverName"
		e.Remedy = "use a host name that is in the certificate, or set " + e.Key
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		e.Key, e.Err = "", Words(err, "its certificate %s", validity(invalid.Cert)) // err's text contains the current time
		e.Remedy = "renew the certificate of the server or its CA, or correct the clock of this machine"
	}
}

// Refused reports whether err means that the server rejected the client certificate or the handshake. A server rejects
// with an alert, or by closing the connection after it requested a client certificate.
func (s *Session) Refused(err error) bool { return alert(err) != "" || s.asked.Load() && Closed(err) }

// alert returns the text of the server's TLS alert. It returns an empty string if err is not an alert.
func alert(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return " (" + op.Err.Error() + ")"
	}
	return ""
}

// explainRefused explains why the server rejected the client certificate or requires one. With TLS 1.3, the alert can
// get lost when the connection is closed.
func (s *Session) explainRefused(e *sinks.ConnectError, err error) {
	switch certFile := s.section + ".certFile"; {
	case !s.asked.Load():
		e.Err = Words(err, "it rejects the handshake%s", alert(err))
	case s.tls.CertFile == "":
		e.Key, e.Err = certFile, Words(err, "it requires a client certificate")
		e.Remedy = "set " + certFile + " and " + s.section + ".keyFile"
	default:
		e.Key, e.Err = certFile, Words(err, "it rejects the client certificate%s", alert(err))
		e.Remedy = "check that " + certFile + " has not expired, and that the server trusts its CA"
	}
}

// validity returns a clause that states when a certificate expires, or why it is not valid now.
func validity(c *x509.Certificate) string {
	now := time.Now()
	switch {
	case now.After(c.NotAfter):
		return "expired on " + c.NotAfter.UTC().Format(time.RFC3339)
	case now.Before(c.NotBefore):
		return "is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	}
	return "is valid until " + c.NotAfter.UTC().Format(time.RFC3339)
}

// soon is how long before its expiry a certificate is reported. One week is enough time to renew it.
const soon = 7 * 24 * time.Hour

// Details describes a connection for `bridge doctor`. warn reports whether a certificate expires soon.
func (s *Session) Details(state tls.ConnectionState) (text string, warn bool) {
	text = tls.VersionName(state.Version)
	if len(state.PeerCertificates) > 0 {
		leaf := state.PeerCertificates[0]
		text += fmt.Sprintf("; the server's certificate (signed by %q) %s", leaf.Issuer, validity(leaf))
		warn = time.Until(leaf.NotAfter) < soon
	}
	if own, err := s.certificate(); err == nil && own.Leaf != nil {
		text += fmt.Sprintf("; the client certificate (%q) %s", own.Leaf.Subject, validity(own.Leaf))
		warn = warn || time.Until(own.Leaf.NotAfter) < soon
	}
	return text, warn
}
