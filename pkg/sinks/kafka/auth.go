package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// The SASL mechanisms.
const (
	mechanismPlain       = "PLAIN"
	mechanismScramSHA256 = "SCRAM-SHA-256"
	mechanismScramSHA512 = "SCRAM-SHA-512"
)

func saslMechanisms() []string {
	return []string{mechanismPlain, mechanismScramSHA256, mechanismScramSHA512}
}

func (t *TLSConfig) enabled() bool { return *t != TLSConfig{} }

// load reads the files. host is what the certificate must be for, unless ServerName is set.
func (t *TLSConfig) load(host string) (*tls.Config, error) {
	c := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
	if c.ServerName == "" {
		c.ServerName = host
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls.caFile: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls.caFile: no PEM certificate in %s", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls.certFile: %w", err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	return c, nil
}

func (s *SASLConfig) password() (string, error) {
	text, err := os.ReadFile(s.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("sasl.passwordFile: %w", err)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

func (s *SASLConfig) mechanism() (sasl.Mechanism, error) {
	password, err := s.password()
	if err != nil {
		return nil, err
	}
	switch s.Mechanism {
	case mechanismScramSHA256:
		return scram.Mechanism(scram.SHA256, s.Username, password)
	case mechanismScramSHA512:
		return scram.Mechanism(scram.SHA512, s.Username, password)
	default:
		return plain.Mechanism{Username: s.Username, Password: password}, nil
	}
}

// authenticate runs the SASL exchange on a new connection. Source: KIP-43, KIP-152, and for the session's life
// KIP-368.
func (k *conn) authenticate(ctx context.Context, s *SASLConfig) error {
	mechanism, err := s.mechanism()
	if err != nil {
		return err
	}
	if err := k.offerMechanism(ctx, s.Mechanism); err != nil {
		return err
	}
	session, state, err := mechanism.Start(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", s.Mechanism, err)
	}
	for done := false; !done; {
		msg, err := k.exchange(ctx, &saslauthenticate.Request{AuthBytes: state})
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			// Old brokers answer a wrong password by closing the connection.
			return s.refusal("the broker closed the connection")
		} else if err != nil {
			return fmt.Errorf("%s: %w", s.Mechanism, err)
		}
		res := msg.(*saslauthenticate.Response)
		if code := kafkago.Error(res.ErrorCode); code == kafkago.SASLAuthenticationFailed {
			return s.refusal(res.ErrorMessage)
		} else if code != 0 {
			return fmt.Errorf("%s: %w %s", s.Mechanism, code, res.ErrorMessage)
		}
		if life := time.Duration(res.SessionLifetimeMs) * time.Millisecond; life > 0 {
			k.expires = time.Now().Add(life * 4 / 5)
		}
		if done, state, err = session.Next(ctx, res.AuthBytes); err != nil {
			return fmt.Errorf("%s: the broker's answer is wrong: %w", s.Mechanism, err)
		}
	}
	return nil
}

func (s *SASLConfig) refusal(words string) error {
	return fmt.Errorf("the broker refuses user %q by %s: wrong user name or password (%s): %w",
		s.Username, s.Mechanism, words, kafkago.SASLAuthenticationFailed)
}

func (k *conn) offerMechanism(ctx context.Context, name string) error {
	msg, err := k.exchange(ctx, &saslhandshake.Request{Mechanism: name})
	if err != nil {
		return fmt.Errorf("offering %s: %w", name, err)
	}
	res := msg.(*saslhandshake.Response)
	switch code := kafkago.Error(res.ErrorCode); code {
	case 0:
		return nil
	case kafkago.UnsupportedSASLMechanism:
		return fmt.Errorf("the broker does not take the SASL mechanism %s, but %s: %w",
			name, strings.Join(res.Mechanisms, ", "), code)
	case kafkago.IllegalSASLState:
		return fmt.Errorf("this listener uses no SASL; leave sasl out, or connect to the port that uses it: %w", code)
	default:
		return fmt.Errorf("offering %s: %w", name, code)
	}
}
