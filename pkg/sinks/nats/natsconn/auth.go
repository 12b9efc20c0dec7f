package natsconn

import (
	"crypto/sha256"
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

// Auth names the files that hold credentials. They are read at each connection, so that they can be rotated. At most
// one of CredentialsFile, NkeyFile, TokenFile and User is set.
type Auth struct {
	// A `.creds` file, with JWT and nkey seed. Like all files with credentials, keys and certificates it is read again at
	// each connection. At most one of `credentialsFile`, `nkeyFile`, `tokenFile` and `user` is given.
	CredentialsFile string `yaml:"credentialsFile" format:"file" example:"/etc/deltabridge/bridge.creds"`
	// A file with the seed of a user's nkey, which begins with `SU`.
	NkeyFile string `yaml:"nkeyFile" format:"file" example:"/etc/deltabridge/bridge.nk"`
	// A file with a token.
	TokenFile string `yaml:"tokenFile" format:"file" example:"/etc/deltabridge/token"`
	// A user, with `passwordFile`.
	User string `yaml:"user" example:"bridge"`
	// A file with the password of `user`.
	PasswordFile string `yaml:"passwordFile" format:"file" example:"/etc/deltabridge/password"`
}

// file returns the file with the secret, and the key that names it; empty without authentication.
func (a *Auth) file() (key, file string) {
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

// Who returns as whom the client presents itself, in words.
func (a *Auth) Who() string {
	switch {
	case a.CredentialsFile != "":
		if claims, err := a.claims(); err == nil {
			return fmt.Sprintf("user %q of the credentials (%s)", claims.Name, claims.Subject)
		}
		return "the user of the credentials"
	case a.NkeyFile != "":
		if public, err := publicKey(a.NkeyFile); err == nil {
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
func (a *Auth) check() error {
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
			_, err = publicKey(a.CredentialsFile)
		}
	case a.NkeyFile != "":
		_, err = publicKey(a.NkeyFile)
	}
	if err != nil {
		return &sinks.ConnectError{Step: sinks.StepFiles, Key: key, Err: fmt.Errorf("%s: %w", file, err), Rejected: true}
	}
	return nil
}

func (a *Auth) claims() (*jwt.UserClaims, error) {
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

// publicKey returns the public key of the seed in a file.
func publicKey(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(text)
	if err != nil {
		return "", errors.New("it holds no seed of a user's nkey (which begins with SU)")
	}
	defer pair.Wipe()
	return pair.PublicKey()
}

// stamp changes with the nkey. nats.go reads all other secrets again by itself, but the nkey's public half only once.
func (a *Auth) stamp() [sha256.Size]byte { return access.Stamp(a.NkeyFile) }

// options checks the files, and lets nats.go read them again at each connection.
func (a *Auth) options() ([]natsgo.Option, error) {
	if err := a.check(); err != nil {
		return nil, err
	}
	key, file := a.file()
	read := func() string { // a file that has gone gives an empty secret, which the server then rejects
		secret, _ := access.Secret(key, file)
		return secret
	}
	switch {
	case a.CredentialsFile != "":
		return []natsgo.Option{natsgo.UserCredentials(file)}, nil
	case a.NkeyFile != "":
		option, err := natsgo.NkeyOptionFromSeed(file)
		if err != nil {
			return nil, &sinks.ConnectError{Step: sinks.StepFiles, Key: key, Err: err}
		}
		return []natsgo.Option{option}, nil
	case a.TokenFile != "":
		return []natsgo.Option{natsgo.TokenHandler(read)}, nil
	case a.User != "":
		return []natsgo.Option{natsgo.UserInfoHandler(func() (string, string) { return a.User, read() })}, nil
	}
	return nil, nil
}

// rejected returns the error of a server that rejects the credentials. err is the server's, or nats.go's.
func (a *Auth) rejected(err error) *sinks.ConnectError {
	key, file := a.file()
	e := &sinks.ConnectError{Step: sinks.StepAuthenticate, Key: key, Rejected: true}
	cause := "it refuses " + a.Who()
	switch {
	case file == "":
		cause, e.Key = "it demands credentials, and none are configured", "nats.credentialsFile"
		e.Remedy = "set nats.credentialsFile, nats.nkeyFile, nats.tokenFile, or nats.user and nats.passwordFile"
	case errors.Is(err, natsgo.ErrNkeysNotSupported):
		cause = "it takes no nkeys and no JWTs, and is shown " + a.Who()
		e.Remedy = "use what the server is configured for: nats.tokenFile, or nats.user and nats.passwordFile"
	case a.CredentialsFile != "":
		e.Remedy = "check that nats.credentialsFile belongs to an account of this server, and was not revoked"
		if jwt, err := a.claims(); err == nil && jwt.Expires > 0 && time.Now().Unix() > jwt.Expires {
			cause += ": the JWT expired on " + time.Unix(jwt.Expires, 0).UTC().Format(time.RFC3339)
			e.Remedy = "issue new credentials, and put them into nats.credentialsFile"
		}
	case a.NkeyFile != "":
		e.Remedy = "add that public key to the server's users, or correct the seed in nats.nkeyFile"
	case a.TokenFile != "":
		e.Remedy = "check the content of nats.tokenFile"
	default:
		cause += ": wrong user or password"
		e.Remedy = "check nats.user and the content of nats.passwordFile, and that the server takes users with passwords"
	}
	e.Err = access.Words(err, "%s (%v)", cause, err)
	return e
}
