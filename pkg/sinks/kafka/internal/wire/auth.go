package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/aws_msk_iam_v2"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// SASL mechanisms that differ from the others.
const (
	MechanismPlain = "PLAIN"
	MechanismIAM   = "AWS_MSK_IAM"
	MechanismOAuth = "OAUTHBEARER"
)

const (
	keyMechanism = "kafka.sasl.mechanism"
	keyPassword  = "kafka.sasl.passwordFile"
	keyRegion    = "kafka.sasl.region"
)

// SASL configures how the bridge authenticates to the brokers.
type SASL struct {
	// The SASL mechanism. If it is empty, the bridge does not authenticate. `OAUTHBEARER` requires `oauth`. `AWS_MSK_IAM`
	// uses the credentials of the AWS environment: the role of a service account (IRSA), EKS Pod Identity, environment
	// variables or files. The other mechanisms require `username` and `passwordFile`.
	Mechanism string `yaml:"mechanism" enum:"PLAIN SCRAM-SHA-256 SCRAM-SHA-512 OAUTHBEARER AWS_MSK_IAM" example:"SCRAM-SHA-512"`
	// The user name.
	Username string `yaml:"username" example:"bridge"`
	// The file that contains the password of `username`. The bridge reads it again for each connection.
	PasswordFile string `yaml:"passwordFile" format:"file" example:"/etc/deltabridge/password"`
	// The AWS region of the cluster, for `AWS_MSK_IAM`. If it is empty, the bridge uses the environment variable
	// `AWS_REGION`, which IRSA sets.
	Region string `yaml:"region" example:"eu-central-1"`
	// The access token, for `OAUTHBEARER`.
	OAuth *OAuth `yaml:"oauth"`
}

// Validate reports keys that are missing for the mechanism or that the mechanism does not use.
func (s *SASL) Validate(at *strictyaml.Section) {
	instead := map[string]string{MechanismIAM: "the credentials of the AWS environment", MechanismOAuth: "an access token"}
	if uses := instead[s.Mechanism]; uses != "" {
		for _, key := range at.Given("username", "passwordFile") {
			at.Report(key, "is not used by "+s.Mechanism+", which uses "+uses, "remove it")
		}
	} else {
		at.Together("mechanism", "username", "passwordFile")
	}
	for key, mechanism := range map[string]string{"region": MechanismIAM, "oauth": MechanismOAuth} {
		if s.Mechanism != mechanism && len(at.Given(key)) > 0 && at.Fine("mechanism") {
			at.Report(key, "is only for mechanism "+mechanism, "remove it, or write mechanism: "+mechanism)
		}
	}
	if s.Mechanism == MechanismOAuth && !at.Has("oauth") {
		at.Report("oauth", "is missing", "add oauth: {tokenFile: /var/run/secrets/kafka/token}")
	}
	if s.OAuth != nil && at.Fine("oauth") {
		s.OAuth.validate(at.At("oauth"))
	}
}

// Who returns a name for the client that is used in messages.
func (s *SASL) Who() string {
	switch s.Mechanism {
	case "":
		return "the client (which does not authenticate)"
	case MechanismIAM:
		return "the IAM role"
	case MechanismOAuth:
		if s.OAuth.TokenFile != "" {
			return "the owner of the token"
		}
		return fmt.Sprintf("client %q", s.OAuth.ClientID)
	}
	return fmt.Sprintf("user %q", s.Username)
}

// Password reads PasswordFile.
func (s *SASL) Password() (string, error) { return access.Secret(keyPassword, s.PasswordFile) }

// mechanism returns the SASL mechanism, and the secret that must not appear in errors.
func (c *Client) mechanism(ctx context.Context) (m sasl.Mechanism, secret string, err error) {
	s := &c.Config.SASL
	switch s.Mechanism {
	case MechanismIAM:
		m, err = c.awsMechanism(ctx)
		return m, "", err
	case MechanismOAuth:
		token, err := c.token(ctx)
		return &bearer{token, s.OAuth.Extensions}, token, err
	}
	password, err := s.Password()
	if err != nil {
		return nil, "", err
	}
	switch s.Mechanism {
	case scram.SHA256.Name():
		m, err = scram.Mechanism(scram.SHA256, s.Username, password)
	case scram.SHA512.Name():
		m, err = scram.Mechanism(scram.SHA512, s.Username, password)
	default:
		m = plain.Mechanism{Username: s.Username, Password: password}
	}
	if err != nil { // The user name or the password contains an unsupported character.
		return nil, "", &sinks.ConnectError{
			Step: sinks.StepFiles, Key: keyPassword,
			Err: errors.New("user name or password contains characters that " + s.Mechanism + " does not support"),
		}
	}
	return m, password, nil
}

// awsMechanism loads the AWS environment at the first call. The SDK renews the credentials before they expire, and then
// also reads the service-account token again.
func (c *Client) awsMechanism(ctx context.Context) (sasl.Mechanism, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.aws == nil {
		// If the region is empty, the SDK uses the region of the environment.
		config, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(c.Config.SASL.Region))
		if err == nil && config.Region == "" {
			err = errors.New("the AWS region is unknown: set " + keyRegion +
				" or the variable AWS_REGION, for example to eu-central-1")
		}
		if err != nil {
			return nil, &sinks.ConnectError{Step: sinks.StepAuthenticate, Key: keyRegion, Err: err}
		}
		c.aws = &config
	}
	return aws_msk_iam_v2.NewMechanism(*c.aws), nil
}

// secretKey returns the configuration key of the credentials, and the remedy if the credentials are wrong.
func (s *SASL) secretKey() (key, remedy string) {
	switch s.Mechanism {
	case MechanismIAM:
		return keyRegion, "give the pod AWS credentials (annotate its service account with eks.amazonaws.com/role-arn, " +
			"or use EKS Pod Identity), allow the IAM role kafka-cluster:Connect on the cluster, and check the clock"
	case MechanismOAuth:
		return oauthSection, "check that the broker trusts the issuer of the token and expects its audience, " +
			"and check the clock"
	}
	return keyPassword, "check kafka.sasl.username and the content of " + keyPassword
}

// authenticate performs the SASL exchange on a new connection. Source: KIP-43 and KIP-152, and KIP-368 for the session
// lifetime.
func (k *conn) authenticate(ctx context.Context, c *Client) error {
	s := &k.cfg.SASL
	mechanism, secret, err := c.mechanism(ctx)
	if err != nil {
		return err
	}
	if err := k.proposeMechanism(ctx, s.Mechanism); err != nil {
		return err
	}
	key, remedy := s.secretKey()
	who := s.Who()
	if b, ok := mechanism.(*bearer); ok {
		who = b.who(who)
	}
	host, _, _ := net.SplitHostPort(k.addr) // AWS_MSK_IAM signs the host name.
	session, state, err := mechanism.Start(sasl.WithMetadata(ctx, &sasl.Metadata{Host: host}))
	if err != nil {
		if s.Mechanism == MechanismIAM {
			text := strings.TrimPrefix(err.Error(), "failed to refresh cached credentials, ")
			err = access.Words(err, "there are no AWS credentials: %s", text)
		}
		return k.fail(sinks.StepAuthenticate, key, remedy, err)
	}
	for done := false; !done; {
		msg, err := k.exchange(ctx, &saslauthenticate.Request{AuthBytes: state})
		if access.Closed(err) {
			// If the password is wrong, old brokers close the connection instead of answering.
			return k.rejected(who, "the broker closed the connection")
		} else if err != nil {
			return k.fail(sinks.StepAuthenticate, "", "", fmt.Errorf("%s: %w", s.Mechanism, err))
		}
		res := msg.(*saslauthenticate.Response)
		message := access.Redact(res.ErrorMessage, secret)
		switch code := kafkago.Error(res.ErrorCode); code {
		case 0:
		case kafkago.SASLAuthenticationFailed:
			c.tokens.discard()
			return k.rejected(who, message)
		default:
			err := fmt.Errorf("%s: %w %s", s.Mechanism, code, message)
			return k.fail(sinks.StepAuthenticate, "kafka.sasl", "", err)
		}
		if life := time.Duration(res.SessionLifetimeMs) * time.Millisecond; life > 0 {
			k.expires = time.Now().Add(life * 4 / 5)
		}
		if done, state, err = session.Next(ctx, res.AuthBytes); err != nil {
			return k.fail(sinks.StepAuthenticate, key, remedy,
				fmt.Errorf("%s: the response of the broker is invalid: %w", s.Mechanism, err))
		}
	}
	exposed, remedy := s.exposed(k.tls != nil)
	k.pass(sinks.StepAuthenticate, who+" with "+s.Mechanism+exposed, remedy)
	return nil
}

// exposed reports who can read a secret that is sent, and what to do about it. Both are empty if no secret is exposed.
func (s *SASL) exposed(encrypted bool) (detail, remedy string) {
	switch {
	case !encrypted && s.Mechanism == MechanismPlain:
		return ", without TLS: anyone on the network path can read the password", "use kafka.tls, or a SCRAM mechanism"
	case !encrypted && s.Mechanism == MechanismOAuth:
		return ", without TLS: anyone on the network path can read the token", "use kafka.tls"
	case s.OAuth != nil && strings.HasPrefix(s.OAuth.TokenURL, "http:"):
		return ": anyone on the path to the token endpoint can read the client secret", "use https in " + keyTokenURL
	}
	return "", ""
}

// rejected returns the error for credentials that the broker rejects.
func (k *conn) rejected(who, message string) error {
	s := &k.cfg.SASL
	e := &sinks.ConnectError{Step: sinks.StepAuthenticate, Address: k.addr, Rejected: true}
	e.Key, e.Remedy = s.secretKey()
	e.Err = access.Words(kafkago.SASLAuthenticationFailed, "the broker rejected the credentials of %s for %s (%s)",
		who, s.Mechanism, message)
	return e
}

func (k *conn) proposeMechanism(ctx context.Context, name string) error {
	msg, err := k.exchange(ctx, &saslhandshake.Request{Mechanism: name})
	if err != nil {
		return k.fail(sinks.StepAuthenticate, keyMechanism, "", fmt.Errorf("SASL handshake for %s: %w", name, err))
	}
	res := msg.(*saslhandshake.Response)
	switch code := kafkago.Error(res.ErrorCode); code {
	case 0:
		return nil
	case kafkago.UnsupportedSASLMechanism:
		others := strings.Join(slices.Sorted(slices.Values(res.Mechanisms)), ", ")
		return k.fail(sinks.StepAuthenticate, keyMechanism, "set "+keyMechanism+" to one of them",
			access.Words(code, "the broker does not support %s, only %s", name, others))
	case kafkago.IllegalSASLState:
		return k.fail(sinks.StepAuthenticate, "kafka.sasl",
			"remove kafka.sasl, or connect to the port of the listener that uses it",
			access.Words(code, "this listener does not use SASL"))
	default:
		return k.fail(sinks.StepAuthenticate, keyMechanism, "", fmt.Errorf("SASL handshake for %s: %w", name, code))
	}
}

// demandsSASL returns a more helpful error than err if a listener that requires SASL probably caused err.
func (k *conn) demandsSASL(err error) error {
	if k.cfg.SASL.Mechanism != "" || k.exchanges != 1 || !access.Closed(err) {
		return err
	}
	return k.fail(sinks.StepAuthenticate, "kafka.sasl",
		"set kafka.sasl.mechanism, username and passwordFile, or connect to the port of another listener",
		errors.New("the broker closed the connection after the first request, as a listener that requires SASL does"))
}
