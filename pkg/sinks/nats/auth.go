package nats

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/jwt/v2"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// file is the file with the secret, and the key that names it; empty without authentication.
func (a *AuthConfig) file() (key, file string) {
	switch {
	case a.CredentialsFile != "":
		return "nats.credentialsFile", a.CredentialsFile
	case a.NkeyFile != "":
		return "nats.nkeyFile", a.NkeyFile
	case a.TokenFile != "":
		return "nats.tokenFile", a.TokenFile
	case a.PasswordFile != "":
		return "nats.passwordFile", a.PasswordFile
	}
	return "", ""
}

// who is for people: what the client shows itself as.
func (a *AuthConfig) who() string {
	switch {
	case a.CredentialsFile != "":
		if claims, err := a.claims(); err == nil {
			return fmt.Sprintf("user %q of the credentials (%s)", claims.Name, claims.Subject)
		}
		return "the user of the credentials"
	case a.NkeyFile != "":
		if public, err := a.publicKey(); err == nil {
			return "the nkey " + public
		}
		return "the nkey"
	case a.TokenFile != "":
		return "the token"
	case a.User != "":
		return fmt.Sprintf("user %q", a.User)
	}
	return "a client without credentials"
}

// check reports whether the file with the secret can be read and understood.
func (a *AuthConfig) check() error {
	key, file := a.file()
	if file == "" {
		return nil
	}
	if _, err := access.Secret(key, file); err != nil {
		return err
	}
	var err error
	switch {
	case a.CredentialsFile != "":
		if _, err = a.claims(); err == nil {
			_, err = a.pair(a.CredentialsFile)
		}
	case a.NkeyFile != "":
		_, err = a.publicKey()
	}
	if err != nil {
		return &sinks.ConnectError{Step: sinks.StepFiles, Key: key, Err: fmt.Errorf("%s: %w", file, err), Rejected: true}
	}
	return nil
}

func (a *AuthConfig) claims() (*jwt.UserClaims, error) {
	text, err := os.ReadFile(a.CredentialsFile)
	if err != nil {
		return nil, err
	}
	token, err := jwt.ParseDecoratedJWT(text)
	if err != nil {
		return nil, errors.New("it holds no JWT of a user")
	}
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		return nil, errors.New("it holds no JWT of a user") // the library's words may repeat parts of it
	}
	return claims, nil
}

func (a *AuthConfig) pair(file string) (nkeys.KeyPair, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return nil, errors.New("it holds no seed of a user's nkey (which begins with SU)")
	}
	return pair, nil
}

func (a *AuthConfig) publicKey() (string, error) {
	pair, err := a.pair(a.NkeyFile)
	if err != nil {
		return "", err
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

// stamp changes with the nkey. nats.go reads all other secrets again by itself, but the nkey's public half only once.
func (a *AuthConfig) stamp() [sha256.Size]byte { return access.Stamp(a.NkeyFile) }

// options checks the files, and lets nats.go read them again at each connection.
func (a *AuthConfig) options() ([]natsgo.Option, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	key, file := a.file()
	read := func() string { // a file that has gone gives an empty secret, which the server then refuses
		secret, _ := access.Secret(key, file)
		return secret
	}
	switch {
	case a.CredentialsFile != "":
		return []natsgo.Option{natsgo.UserCredentials(file)}, nil
	case a.NkeyFile != "":
		public, err := a.publicKey()
		if err != nil {
			return nil, &sinks.ConnectError{Step: sinks.StepFiles, Key: key, Err: err}
		}
		return []natsgo.Option{natsgo.Nkey(public, func(nonce []byte) ([]byte, error) {
			pair, err := a.pair(file)
			if err != nil {
				return nil, err
			}
			defer pair.Wipe()
			return pair.Sign(nonce)
		})}, nil
	case a.TokenFile != "":
		return []natsgo.Option{natsgo.TokenHandler(read)}, nil
	case a.User != "":
		return []natsgo.Option{natsgo.UserInfoHandler(func() (string, string) { return a.User, read() })}, nil
	}
	return nil, nil
}

// authError is a server's refusal of the credentials. words are the server's.
func (s *Sink) authError(info *serverInfo, words error) *sinks.ConnectError {
	a := &s.cfg.Auth
	key, file := a.file()
	e := &sinks.ConnectError{Step: sinks.StepAuthenticate, Key: key, Rejected: true}
	also := ""
	if info.Nonce != "" {
		also = "; or use nats.credentialsFile or nats.nkeyFile, which it takes too"
	}
	refuse := func(remedy, format string, args ...any) *sinks.ConnectError {
		e.Remedy = remedy
		e.Err = access.Words(words, "%s (%v)", fmt.Sprintf(format, args...), words)
		return e
	}
	switch {
	case file == "":
		e.Key = "nats.credentialsFile"
		return refuse("set nats.credentialsFile, nats.nkeyFile, nats.tokenFile, or nats.user and nats.passwordFile", "it demands credentials, and none are configured")
	case (a.CredentialsFile != "" || a.NkeyFile != "") && info.known && info.Nonce == "":
		return refuse("use what the server is configured for: nats.tokenFile, or nats.user and nats.passwordFile", "it takes no nkeys and no JWTs, and is shown %s", a.who())
	case a.CredentialsFile != "":
		if claims, err := a.claims(); err == nil && claims.Expires > 0 && time.Now().Unix() > claims.Expires {
			end := time.Unix(claims.Expires, 0).UTC().Format(time.RFC3339)
			return refuse("issue new credentials, and put them into nats.credentialsFile", "it refuses %s: the JWT expired on %s", a.who(), end)
		}
		return refuse("check that nats.credentialsFile belongs to an account of this server, and was not revoked", "it refuses %s", a.who())
	case a.NkeyFile != "":
		return refuse("add that public key to the server's users, or correct the seed in nats.nkeyFile", "it refuses %s", a.who())
	case a.TokenFile != "":
		return refuse("check the content of nats.tokenFile"+also, "it refuses the token")
	}
	return refuse("check nats.user and the content of nats.passwordFile"+also, "it refuses %s: wrong user or password", a.who())
}

// tlsSection is where the configuration of a sink has its TLS.
const tlsSection = "nats.tls"

// tlsOptions let nats.go read the files again at each handshake. (With ws: it takes them for a wish for TLS.)
func tlsOptions(session *access.Session, always bool) ([]natsgo.Option, error) {
	config, err := session.Config("") // nats.go fills in the host
	if err != nil {
		return nil, err
	}
	return []natsgo.Option{func(o *natsgo.Options) error {
		o.TLSConfig = &tls.Config{
			MinVersion: config.MinVersion, ServerName: config.ServerName, GetClientCertificate: config.GetClientCertificate,
		}
		o.RootCAsCB = session.RootCAs
		o.Secure = o.Secure || always
		return nil
	}}, nil
}
