package wire

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	oauthSection    = "kafka.sasl.oauth"
	keyTokenFile    = oauthSection + ".tokenFile"
	keyTokenURL     = oauthSection + ".tokenUrl"
	keyClientSecret = oauthSection + ".clientSecretFile"
)

// OAuth configures where the access tokens for `OAUTHBEARER` come from. Set either `tokenFile`, or `tokenUrl`,
// `clientId` and `clientSecretFile`.
type OAuth struct {
	// A file that contains the token, such as a projected service-account token, which the kubelet renews. The bridge
	// reads it again for each connection.
	TokenFile string `yaml:"tokenFile" format:"file" example:"/var/run/secrets/kafka/token"`
	// The URL of a token endpoint that issues tokens for client credentials (OAuth 2.0). The bridge uses a token for all
	// connections, and requests the next one after three quarters of its lifetime.
	TokenURL string `yaml:"tokenUrl" example:"https://login.example.com/oauth2/token"`
	// The client id that the token endpoint knows.
	ClientID string `yaml:"clientId" example:"deltabridge"`
	// The file that contains the client secret. The bridge reads it again for each connection.
	ClientSecretFile string `yaml:"clientSecretFile" format:"file" example:"/etc/deltabridge/client-secret"`
	// The scopes to request from the token endpoint.
	Scopes []string `yaml:"scopes" example:"[kafka]"`
	// A PEM file with the certificates of the CAs that are trusted for the token endpoint. If it is not set, the CAs of
	// the system are trusted.
	CAFile string `yaml:"caFile" format:"file" example:"/etc/deltabridge/tls/ca.crt"`
	// SASL extensions, which are sent with the token. Confluent Cloud requires `logicalCluster` and `identityPoolId`.
	Extensions map[string]string `yaml:"extensions" example:"{logicalCluster: lkc-abc123, identityPoolId: pool-Xy12}"`
}

// The characters of SASL extensions. Source: RFC 7628, section 3.1, and KIP-342.
var (
	extensionKey   = regexp.MustCompile(`^[A-Za-z]+$`)
	extensionValue = regexp.MustCompile(`^[\x20-\x7e]+$`)
)

func (o *OAuth) validate(at *strictyaml.Section) {
	at.AtMostOne("tokenFile", "tokenUrl")
	at.Together("tokenUrl", "clientId", "clientSecretFile")
	switch given := at.Given("scopes", "caFile"); {
	case len(at.Given("tokenFile", "tokenUrl", "clientId", "clientSecretFile")) == 0:
		at.Report("", "has no token", "add tokenFile, or tokenUrl, clientId and clientSecretFile")
	case o.TokenURL == "" && len(given) > 0:
		at.Report(given[0], "has no effect without tokenUrl", "remove it, or add tokenUrl")
	}
	u, err := url.Parse(o.TokenURL)
	valid := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil
	if o.TokenURL != "" && !valid {
		at.Report("tokenUrl", "is not an http or https URL without a user", "")
	}
	for key, value := range o.Extensions {
		if !extensionKey.MatchString(key) || key == "auth" || !extensionValue.MatchString(value) {
			at.Report(fmt.Sprintf("extensions[%q]", key), "is not a valid SASL extension",
				"use only letters in the name (but not auth), and visible ASCII characters in the value")
		}
	}
}

// files returns the configured files. File names that are not configured are empty.
func (o *OAuth) files() []string {
	if o == nil {
		return nil
	}
	return []string{o.TokenFile, o.ClientSecretFile, o.CAFile}
}

// checkFiles returns an error if a file is unreadable or invalid.
func (o *OAuth) checkFiles() error {
	if o == nil {
		return nil
	}
	_, err := (&access.TLS{CAFile: o.CAFile}).NewSession(oauthSection)
	_, secretErr := access.Secret(o.secret())
	return errors.Join(err, secretErr)
}

// secret returns the file with the token or the client secret, and its configuration key.
func (o *OAuth) secret() (key, file string) {
	if o.TokenFile != "" {
		return keyTokenFile, o.TokenFile
	}
	return keyClientSecret, o.ClientSecretFile
}

// bearer implements the SASL mechanism OAUTHBEARER. Source: RFC 7628, and KIP-342 for extensions.
type bearer struct {
	token      string
	extensions map[string]string
}

// Name implements [sasl.Mechanism].
func (*bearer) Name() string { return MechanismOAuth }

// Start implements [sasl.Mechanism].
func (b *bearer) Start(context.Context) (sasl.StateMachine, []byte, error) {
	text := fmt.Appendf(nil, "n,,\x01auth=Bearer %s\x01", b.token)
	for _, key := range slices.Sorted(maps.Keys(b.extensions)) {
		text = fmt.Appendf(text, "%s=%s\x01", key, b.extensions[key])
	}
	return b, append(text, 1), nil
}

// Next implements [sasl.StateMachine]. A broker that rejects the token sends a challenge, and reports the failure only
// after the client has answered it.
func (*bearer) Next(_ context.Context, challenge []byte) (done bool, response []byte, err error) {
	return len(challenge) == 0, []byte{1}, nil
}

// who returns the subject and the expiry of the token if it is a JWT. Otherwise it returns name.
func (b *bearer) who(name string) string {
	var claims struct {
		Subject string `json:"sub"`
		Expires int64  `json:"exp"`
	}
	if parts := strings.Split(b.token, "."); len(parts) == 3 {
		payload, _ := base64.RawURLEncoding.DecodeString(parts[1]) // If it is invalid, Unmarshal fails.
		_ = json.Unmarshal(payload, &claims)                       // If it fails, the token is not a JWT.
	}
	if claims.Subject != "" {
		name = fmt.Sprintf("%q", claims.Subject)
	}
	if claims.Expires > 0 {
		verb, end := "expires", time.Unix(claims.Expires, 0)
		if end.Before(time.Now()) {
			verb = "expired"
		}
		name += fmt.Sprintf(", whose token %s on %s,", verb, end.UTC().Format(time.RFC3339))
	}
	return name
}

// token returns the access token for a new connection.
func (c *Client) token(ctx context.Context) (string, error) {
	o := c.Config.SASL.OAuth
	secret, err := access.Secret(o.secret())
	if err != nil || o.TokenFile != "" {
		return secret, err
	}
	t := &c.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.config.ClientSecret != secret {
		t.renew, t.tried = time.Time{}, time.Time{}
	}
	if now := time.Now(); !now.Before(t.renew) && now.Sub(t.tried) >= reach.Interval {
		t.config.ClientID, t.config.ClientSecret = o.ClientID, secret
		t.config.TokenURL, t.config.Scopes = o.TokenURL, o.Scopes
		token, err := t.request(ctx, c.Config)
		if err != nil && ctx.Err() != nil {
			return "", err
		}
		now = time.Now()
		if t.tried, t.err = now, err; err == nil {
			t.text, t.expires, t.renew = token.AccessToken, token.Expiry, now.Add(token.Expiry.Sub(now)/4*3)
		}
	}
	if t.err != nil && time.Now().Before(t.expires) {
		c.Config.Logger.Warn("cannot renew the access token, using the current one", "expires", t.expires, "err", t.err)
		return t.text, nil
	}
	return t.text, t.err
}

// tokens requests access tokens from a token endpoint. All connections share a token. After an error, all connections
// share the error for a short time, so several brokers do not multiply the requests.
type tokens struct {
	mu      sync.Mutex
	config  clientcredentials.Config // remembers how the endpoint accepts the client secret
	text    string                   // the last token
	expires time.Time                // when text expires; zero if unknown
	renew   time.Time                // when to request the next token
	tried   time.Time                // the time of the last request
	err     error                    // the error of the last request
}

// discard requests a new token for the next connection, because the broker rejected the current token.
func (t *tokens) discard() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renew, t.expires = time.Time{}, time.Time{}
}

// request requests a token. It must be called with mu held.
func (t *tokens) request(ctx context.Context, cfg *Config) (*oauth2.Token, error) {
	session, err := (&access.TLS{CAFile: cfg.SASL.OAuth.CAFile}).NewSession(oauthSection)
	if err != nil {
		return nil, err
	}
	client, err := session.HTTPClient()
	if err != nil {
		return nil, err
	}
	timeout := cfg.RequestTimeout / 2 // The rest is for the broker: the current token may still be valid.
	asking, cancel := context.WithTimeout(context.WithValue(ctx, oauth2.HTTPClient, client), timeout)
	defer cancel()
	token, err := t.config.Token(asking)
	if err != nil {
		return nil, t.explain(ctx, session, timeout, err)
	}
	return token, nil
}

// explain returns the error of a failed request. It contains nothing of the endpoint's response except the error code
// and its description.
func (t *tokens) explain(ctx context.Context, session *access.Session, timeout time.Duration, err error) error {
	u, _ := url.Parse(t.config.TokenURL) // the configuration is valid
	e := &sinks.ConnectError{Step: sinks.StepAuthenticate, Key: keyTokenURL, Rejected: true}
	answer, answered := errors.AsType[*oauth2.RetrieveError](err)
	_, failed := errors.AsType[*url.Error](err)
	switch {
	case answered:
		e.Key, e.Remedy = keyClientSecret, "check clientId, scopes, and the content of "+keyClientSecret
		text := strings.Join([]string{answer.Response.Status, answer.ErrorCode, answer.ErrorDescription}, " ")
		err = access.Words(err, "it answers %s", access.Redact(strings.TrimSpace(text), t.config.ClientSecret))
	case !failed:
		e.Remedy, err = "correct "+keyTokenURL, access.Words(err, "the response contains no token (%v)", err)
	default:
		err = session.HTTPError(ctx, u.Host, keyTokenURL, timeout, err)
		known, ok := errors.AsType[*sinks.ConnectError](err)
		if !ok { // ctx is canceled
			return err
		}
		e.Key, e.Remedy, e.Rejected, err = known.Key, known.Remedy, false, known.Err
	}
	e.Err = fmt.Errorf("token endpoint %s: %w", u.Host, err)
	return e
}
