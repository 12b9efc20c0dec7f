package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// TLS is how a connection is secured. The certificate of the server is always verified.
type TLS struct {
	// Use TLS. It need not be given if another key of `tls` is.
	Enabled bool `yaml:"enabled" default:"false" example:"true"`
	// The certificates of the authorities to trust, as PEM. Not given: those of the system. All files with certificates and
	// keys are read again at each connection.
	CAFile string `yaml:"caFile" format:"file" example:"/etc/deltabridge/tls/ca.crt"`
	// The certificate that the bridge shows, as PEM. With `keyFile`.
	CertFile string `yaml:"certFile" format:"file" example:"/etc/deltabridge/tls/tls.crt"`
	// The private key of `certFile`, as PEM.
	KeyFile string `yaml:"keyFile" format:"file" example:"/etc/deltabridge/tls/tls.key"`
	// The name that the certificate of the server has to have. Empty: the host that is connected to.
	ServerName string `yaml:"serverName" example:"nats.example.com"`

	InsecureSkipVerify bool // takes any certificate: for tests
}

// IsSet reports whether TLS is to be used: by Enabled or any other field.
func (t *TLS) IsSet() bool { return *t != TLS{} }

// Files are those that are named.
func (t *TLS) Files() []string { return []string{t.CAFile, t.CertFile, t.KeyFile} }

// Validate reports what contradicts each other.
func (t *TLS) Validate(at *strictyaml.Section) {
	at.Together("certFile", "keyFile")
	if at.Has("enabled") && !t.Enabled && len(at.Given("caFile", "certFile", "keyFile", "serverName")) > 0 {
		at.Report("enabled", "is false, but other keys of tls are given", "write true, or remove the others")
	}
}

// CanonicalHost is a host in one spelling, to compare it with others.
func CanonicalHost(host string) string {
	switch host {
	case "", "0.0.0.0", "::", "::1", "localhost":
		return "127.0.0.1"
	}
	return strings.ToLower(host)
}

// Session is one or more handshakes with the files as they are at that time. It is safe for concurrent use.
type Session struct {
	tls     TLS
	section string

	mu       sync.Mutex
	asked    bool              // the other side wants a certificate of ours
	accepted [][]byte          // the authorities that it takes; empty: it does not say
	shown    *x509.Certificate // what was shown to it
}

// NewSession checks that the files can be read and understood. section is where the configuration has them, as in "kafka.tls".
func (t *TLS) NewSession(section string) (*Session, error) {
	s := &Session{tls: *t, section: section}
	if _, err := s.RootCAs(); err != nil {
		return nil, err
	}
	if t.CertFile != "" {
		if _, err := s.certificate(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// RootCAs reads CAFile; nil stands for the system's.
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

func (s *Session) certificate() (*tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(s.tls.CertFile, s.tls.KeyFile)
	if err != nil {
		key := s.section + ".certFile"
		if path, ok := errors.AsType[*os.PathError](err); ok && path.Path == s.tls.KeyFile {
			key = s.section + ".keyFile"
		}
		return nil, fileError(key, fmt.Errorf("the pair %s, %s: %w", s.tls.CertFile, s.tls.KeyFile, err))
	}
	return &cert, nil
}

// Config is for a handshake with host. Its callback reads the client certificate again at each handshake; RootCAs are
// those of now.
func (s *Session) Config(host string) (*tls.Config, error) {
	roots, err := s.RootCAs()
	if err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           s.tls.ServerName,
		RootCAs:              roots,
		InsecureSkipVerify:   s.tls.InsecureSkipVerify,
		GetClientCertificate: s.clientCertificate,
	}
	if c.ServerName == "" {
		c.ServerName = host
	}
	return c, nil
}

// clientCertificate is for tls.Config. It shows the certificate even if the other side does not name its authority:
// the refusal then says what is wrong, where no certificate at all would be taken for none configured.
func (s *Session) clientCertificate(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.accepted, s.shown = true, info.AcceptableCAs, nil
	if s.tls.CertFile == "" {
		return new(tls.Certificate), nil
	}
	cert, err := s.certificate()
	if err != nil {
		return nil, err
	}
	s.shown = cert.Leaf
	return cert, nil
}

// Handshake makes a TLS connection of nc, which it closes when it fails. address is who it is with, as host:port.
func (s *Session) Handshake(ctx context.Context, nc net.Conn, address string, timeout time.Duration) (*tls.Conn, error) {
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

// Failure is a failed handshake with address in words. With TLS 1.3 a client's certificate is refused after the
// handshake: errors of the first read belong here too, see [Session.Refused].
func (s *Session) Failure(address string, timeout time.Duration, err error) error {
	if known, ok := errors.AsType[*sinks.ConnectError](err); ok { // of a file, out of a callback
		return known
	}
	e := &sinks.ConnectError{Step: sinks.StepTLS, Address: address, Key: s.section}
	if s.distrust(e, err) {
		return e
	}
	var header tls.RecordHeaderError
	switch {
	case s.Refused(err):
		s.refusal(e, err)
	case errors.As(err, &header):
		e.Err = errors.New("it answers, but not in TLS")
		e.Remedy = "leave " + s.section + " out, or connect to the port of the TLS listener"
	case Closed(err):
		e.Err = errors.New("it closed the connection during the handshake, as a port without TLS does")
		e.Remedy = "leave " + s.section + " out, or connect to the port of the TLS listener"
	case TimedOut(err):
		e.Err = Words(os.ErrDeadlineExceeded, "no answer to the handshake within %v", timeout)
		e.Remedy = "see whether the port is a TLS listener, and whether " + s.section + " belongs there"
	default:
		e.Err = Plain(err)
	}
	return e
}

// distrust is for what this side refuses: the other's certificate.
func (s *Session) distrust(e *sinks.ConnectError, err error) bool {
	var leaf *x509.Certificate
	var verification *tls.CertificateVerificationError
	if errors.As(err, &verification) && len(verification.UnverifiedCertificates) > 0 {
		leaf = verification.UnverifiedCertificates[0]
	}
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case errors.As(err, &unknown):
		e.Key = s.section + ".caFile"
		from := "the system's authorities"
		if s.tls.CAFile != "" {
			from = s.tls.CAFile
		}
		e.Err = fmt.Errorf("its certificate is signed by %q, which is not among %s: %w", issuer(leaf), from, err)
		e.Remedy = "put the certificate of that authority into " + e.Key
	case errors.As(err, &host):
		e.Key = s.section + ".serverName"
		e.Err = fmt.Errorf("its certificate is for %s, not for %s: %w", names(host.Certificate), host.Host, err)
		e.Remedy = "connect by a name that the certificate has, or set " + e.Key
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired && invalid.Cert != nil:
		e.Key = ""
		e.Err = Words(err, "its certificate %s", validity(invalid.Cert, time.Now())) // err's words have the present time
		e.Remedy = "renew the certificate of the server (or of its authority), or set the clock of this machine"
	case verification != nil:
		e.Key = s.section + ".caFile"
		e.Err = fmt.Errorf("its certificate is not accepted: %w", err)
	default:
		return false
	}
	return true
}

// Refused reports whether err says that the other side refused in TLS: by an alert, or, where it wanted a certificate
// of ours and did not get one that it takes, by closing the connection.
func (s *Session) Refused(err error) bool {
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked && Closed(err) && (s.shown == nil || !s.taken() || expired(s.shown, time.Now()))
}

// taken reports whether the certificate that was shown is of an authority that the other side names. An intermediate
// one may stand in between, so that a No is no proof.
func (s *Session) taken() bool {
	if len(s.accepted) == 0 || s.shown == nil {
		return true
	}
	for _, name := range s.accepted {
		if string(name) == string(s.shown.RawIssuer) || string(name) == string(s.shown.RawSubject) {
			return true
		}
	}
	return false
}

// refusal is for what the other side refuses: our certificate, or its absence.
func (s *Session) refusal(e *sinks.ConnectError, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := s.section + ".certFile"
	now := time.Now()
	alert := "" // the words of it, where there is one: with TLS 1.3 it can get lost behind the closing of the connection
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		alert = " (" + op.Err.Error() + ")"
	}
	switch {
	case s.asked && s.shown == nil:
		e.Key = key
		e.Err = Words(err, "it demands a client certificate, and none is configured")
		e.Remedy = "set " + key + " and " + s.section + ".keyFile"
	case s.asked && expired(s.shown, now):
		e.Key = key
		e.Err = Words(err, "it refuses the client certificate, which %s", validity(s.shown, now))
		e.Remedy = "renew the certificate in " + key
	case s.asked:
		e.Key = key
		e.Err = Words(err, "it refuses the client certificate of %q, signed by %q%s", s.shown.Subject, issuer(s.shown), alert)
		e.Remedy = "let the server trust that authority, or set another certificate in " + key
	default:
		e.Err = Words(err, "it refuses the handshake%s", alert)
	}
}

func issuer(c *x509.Certificate) string {
	if c == nil {
		return "an unknown authority"
	}
	return c.Issuer.String()
}

// names are those that a certificate is for.
func names(c *x509.Certificate) string {
	all := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no host"
	}
	if len(all) > 5 {
		all = append(all[:5], "others")
	}
	return strings.Join(all, ", ")
}

func expired(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotAfter) || now.Before(c.NotBefore)
}

// validity says how a certificate stands in time.
func validity(c *x509.Certificate, now time.Time) string {
	switch {
	case now.After(c.NotAfter):
		return "expired on " + c.NotAfter.UTC().Format(time.RFC3339)
	case now.Before(c.NotBefore):
		return "is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	}
	return "is valid until " + c.NotAfter.UTC().Format(time.RFC3339)
}

// soon is how long before its end a certificate is worth a warning: a week is enough to act.
const soon = 7 * 24 * time.Hour

// Details says for people how a connection is secured. warn: a certificate ends soon.
func (s *Session) Details(state tls.ConnectionState) (text string, warn bool) {
	now := time.Now()
	parts := []string{tls.VersionName(state.Version)}
	if len(state.PeerCertificates) > 0 {
		leaf := state.PeerCertificates[0]
		parts = append(parts, fmt.Sprintf("the server's certificate (signed by %q) %s", issuer(leaf), validity(leaf, now)))
		warn = leaf.NotAfter.Sub(now) < soon
	}
	if s.tls.InsecureSkipVerify {
		parts = append(parts, "which is not verified")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.shown != nil:
		parts = append(parts, fmt.Sprintf("the client's (%q) %s", s.shown.Subject, validity(s.shown, now)))
		warn = warn || s.shown.NotAfter.Sub(now) < soon
	case s.asked:
		parts = append(parts, "it asks for a client certificate; none is configured")
	}
	return strings.Join(parts, "; "), warn
}
