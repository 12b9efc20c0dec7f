package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// The SASL mechanisms.
const (
	mechanismPlain       = "PLAIN"
	mechanismScramSHA256 = "SCRAM-SHA-256"
	mechanismScramSHA512 = "SCRAM-SHA-512"
	mechanismIAM         = "AWS_MSK_IAM"
)

// tlsSection is where the configuration of a sink has its TLS.
const tlsSection = "kafka.tls"

// files are all that a connection is opened with.
func (cfg *Config) files() []string {
	return append(cfg.TLS.Files(), cfg.SASL.PasswordFile)
}

func (s *SASLConfig) password() (string, error) {
	return access.Secret("kafka.sasl.passwordFile", s.PasswordFile)
}

// mechanism also gives the secret that no error may repeat.
func (s *SASLConfig) mechanism(ctx context.Context, aws *awsCredentials) (_ sasl.Mechanism, secret string, err error) {
	if s.Mechanism == mechanismIAM {
		m, err := aws.mechanism(ctx, s)
		return m, "", err
	}
	password, err := s.password()
	if err != nil {
		return nil, "", err
	}
	var m sasl.Mechanism = plain.Mechanism{Username: s.Username, Password: password}
	switch s.Mechanism {
	case mechanismScramSHA256:
		m, err = scram.Mechanism(scram.SHA256, s.Username, password)
	case mechanismScramSHA512:
		m, err = scram.Mechanism(scram.SHA512, s.Username, password)
	}
	if err != nil { // of the preparation of strings: a character that passwords can't have
		return nil, "", &sinks.ConnectError{
			Step: sinks.StepFiles, Key: "kafka.sasl.passwordFile", Err: errors.New("user or password hold characters that " + s.Mechanism + " does not take"),
		}
	}
	return m, password, nil
}

// authenticate runs the SASL exchange on a new connection. Source: KIP-43, KIP-152, and for the session's life
// KIP-368.
func (k *conn) authenticate(ctx context.Context, s *SASLConfig, aws *awsCredentials) error {
	mechanism, secret, err := s.mechanism(ctx, aws)
	if err != nil {
		return err
	}
	if err := k.offerMechanism(ctx, s.Mechanism); err != nil {
		return err
	}
	session, state, err := mechanism.Start(k.withMetadata(ctx))
	if err != nil {
		if s.Mechanism == mechanismIAM {
			err = access.Words(err, "there are no AWS credentials: %s", strings.TrimPrefix(err.Error(), "failed to refresh cached credentials, "))
		}
		return k.fail(sinks.StepAuthenticate, s.secretKey(), s.startRemedy(), err)
	}
	for done := false; !done; {
		msg, err := k.exchange(ctx, &saslauthenticate.Request{AuthBytes: state})
		if isClosed(err) {
			// Old brokers answer a wrong password by closing the connection.
			return k.refused(s, "it closed the connection")
		} else if err != nil {
			return k.fail(sinks.StepAuthenticate, "", "", fmt.Errorf("%s: %w", s.Mechanism, err))
		}
		res := msg.(*saslauthenticate.Response)
		if code := kafkago.Error(res.ErrorCode); code == kafkago.SASLAuthenticationFailed {
			return k.refused(s, access.Redact(res.ErrorMessage, secret))
		} else if code != 0 {
			words := access.Redact(res.ErrorMessage, secret)
			return k.fail(sinks.StepAuthenticate, "kafka.sasl", "", fmt.Errorf("%s: %w %s", s.Mechanism, code, words))
		}
		if life := time.Duration(res.SessionLifetimeMs) * time.Millisecond; life > 0 {
			k.expires = time.Now().Add(life * 4 / 5)
		}
		if done, state, err = session.Next(ctx, res.AuthBytes); err != nil {
			return k.fail(sinks.StepAuthenticate, s.secretKey(), s.startRemedy(),
				fmt.Errorf("%s: its proof that it knows the password is wrong: %w", s.Mechanism, err))
		}
	}
	return nil
}

// withMetadata says who the exchange is with, as AWS_MSK_IAM needs to know: it signs the host.
func (k *conn) withMetadata(ctx context.Context) context.Context {
	host, port, err := net.SplitHostPort(k.addr)
	if err != nil {
		return ctx
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return ctx
	}
	return sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: number})
}

// secretKey is the key that what is secret comes from.
func (s *SASLConfig) secretKey() string {
	if s.Mechanism == mechanismIAM {
		return "kafka.sasl.region"
	}
	return "kafka.sasl.passwordFile"
}

func (s *SASLConfig) startRemedy() string {
	if s.Mechanism == mechanismIAM {
		return "give the pod AWS credentials: annotate its service account with eks.amazonaws.com/role-arn, or use EKS Pod Identity"
	}
	return "check kafka.sasl.username and the content of kafka.sasl.passwordFile"
}

func (k *conn) refused(s *SASLConfig, words string) error {
	e := &sinks.ConnectError{Step: sinks.StepAuthenticate, Address: k.addr, Key: s.secretKey(), Rejected: true}
	if s.Mechanism == mechanismIAM {
		e.Remedy = "allow the IAM role kafka-cluster:Connect on the cluster, and check kafka.sasl.region and the clock"
		e.Err = access.Words(kafkago.SASLAuthenticationFailed, "it refuses the AWS credentials (%s)", words)
		return e
	}
	e.Remedy = s.startRemedy()
	e.Err = access.Words(kafkago.SASLAuthenticationFailed, "it refuses user %q by %s: wrong user name or password (%s)", s.Username, s.Mechanism, words)
	return e
}

func (k *conn) offerMechanism(ctx context.Context, name string) error {
	const key = "kafka.sasl.mechanism"
	msg, err := k.exchange(ctx, &saslhandshake.Request{Mechanism: name})
	if err != nil {
		return k.fail(sinks.StepAuthenticate, key, "", fmt.Errorf("offered %s: %w", name, err))
	}
	res := msg.(*saslhandshake.Response)
	switch code := kafkago.Error(res.ErrorCode); code {
	case 0:
		return nil
	case kafkago.UnsupportedSASLMechanism:
		return k.fail(sinks.StepAuthenticate, key, "set "+key+" to one of them",
			access.Words(code, "it does not take %s, but %s", name, strings.Join(slices.Sorted(slices.Values(res.Mechanisms)), ", ")))
	case kafkago.IllegalSASLState:
		return k.fail(sinks.StepAuthenticate, "kafka.sasl", "leave kafka.sasl out, or connect to the port of the listener that uses it",
			access.Words(code, "this listener uses no SASL"))
	default:
		return k.fail(sinks.StepAuthenticate, key, "", fmt.Errorf("offered %s: %w", name, code))
	}
}

// demandsSASL is what a listener that demands SASL does to a client that does not authenticate.
func (k *conn) demandsSASL() error {
	return k.fail(sinks.StepAuthenticate, "kafka.sasl", "set kafka.sasl.mechanism, username and passwordFile, or connect to the port of another listener",
		errors.New("it closed the connection at the first request, as a listener that demands SASL does"))
}
