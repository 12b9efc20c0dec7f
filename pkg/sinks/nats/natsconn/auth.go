package natsconn

import (
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// Auth contains the names of the files with credentials. The files are read for every connection, so they can be
// rotated. At most one of CredentialsFile, NkeyFile, TokenFile and User may be set.
type Auth struct {
	// A `.creds` file with a JWT and an nkey seed. Set at most one of `credentialsFile`, `nkeyFile`, `tokenFile` and
	// `user`. All files with credentials are read again for every connection.
	CredentialsFile string `yaml:"credentialsFile" format:"file" example:"/etc/deltabridge/bridge.creds"`
	// A file with the seed of a user nkey. A seed begins with `SU`.
	NkeyFile string `yaml:"nkeyFile" format:"file" example:"/etc/deltabridge/bridge.nk"`
	// A file with a token.
	TokenFile string `yaml:"tokenFile" format:"file" example:"/etc/deltabridge/token"`
	// The user name. It requires `passwordFile`.
	User string `yaml:"user" example:"bridge"`
	// A file with the password of `user`.
	PasswordFile string `yaml:"passwordFile" format:"file" example:"/etc/deltabridge/password"`
}

// credential describes the credentials of a client.
type credential struct {
	file   string          // the file with the secret; empty without authentication
	key    string          // the configuration key of the file
	who    string          // the identity of the client as the server knows it
	remedy string          // the remedy if the server rejects the credentials
	claims *jwt.UserClaims // the claims in a credentials file; nil for other files
}

// read reads and checks the file with the secret. If it returns an error, c lacks only the details from the content of
// the file.
func (a *Auth) read() (c credential, err error) {
	switch {
	case a.CredentialsFile != "":
		c = credential{file: a.CredentialsFile, key: "nats.credentialsFile", who: "the user of the credentials"}
		c.remedy = "check that nats.credentialsFile belongs to an account of this server, and was not revoked"
	case a.NkeyFile != "":
		c = credential{file: a.NkeyFile, key: "nats.nkeyFile", who: "the nkey"}
		c.remedy = "add that public key to the server's users, or correct the seed in nats.nkeyFile"
	case a.TokenFile != "":
		c = credential{file: a.TokenFile, key: "nats.tokenFile", who: "the token"}
		c.remedy = "check the content of nats.tokenFile"
	case a.User != "":
		c = credential{file: a.PasswordFile, key: "nats.passwordFile", who: fmt.Sprintf("user %q", a.User)}
		c.remedy = "check nats.user and the content of nats.passwordFile, and that the server takes users with passwords"
	default:
		c = credential{key: "nats.credentialsFile", who: "a client without credentials"}
		c.remedy = "set nats.credentialsFile, nats.nkeyFile, nats.tokenFile, or nats.user and nats.passwordFile"
		return c, nil
	}
	secret, err := access.Secret(c.key, c.file)
	if err != nil {
		return c, err
	}
	if a.CredentialsFile != "" || a.NkeyFile != "" {
		err = c.parse(secret)
	}
	if err != nil {
		err = &sinks.ConnectError{Step: sinks.StepFiles, Key: c.key, Err: fmt.Errorf("%s: %w", c.file, err), Rejected: true}
	}
	return c, err
}

// parse sets who, and the claims of a credentials file. Its errors contain nothing from the content of the file.
func (c *credential) parse(secret string) error {
	if c.key == "nats.credentialsFile" {
		token, err := jwt.ParseDecoratedJWT([]byte(secret))
		if err == nil {
			c.claims, err = jwt.DecodeUserClaims(token)
		}
		if err != nil {
			return errors.New("it holds no JWT of a user")
		}
		c.who = fmt.Sprintf("user %q of the credentials (%s)", c.claims.Name, c.claims.Subject)
	}
	pair, err := nkeys.ParseDecoratedUserNKey([]byte(secret))
	if err != nil {
		return errors.New("it holds no seed of a user's nkey (which begins with SU)")
	}
	defer pair.Wipe()
	if c.claims != nil {
		return nil
	}
	public, err := pair.PublicKey()
	c.who += " " + public
	return err
}

// Who returns the identity of the client as the server knows it.
func (a *Auth) Who() string {
	c, _ := a.read() // who is set even if read fails
	return c.who
}

// options checks the files. With the returned options, nats.go reads the files again for every connection.
func (a *Auth) options() ([]natsgo.Option, error) {
	c, err := a.read()
	if err != nil {
		return nil, err
	}
	read := func() string { // if the file is missing, the secret is empty and the server rejects it
		secret, _ := access.Secret(c.key, c.file)
		return secret
	}
	switch {
	case a.CredentialsFile != "":
		return []natsgo.Option{natsgo.UserCredentials(c.file)}, nil
	case a.NkeyFile != "":
		option, err := natsgo.NkeyOptionFromSeed(c.file)
		return []natsgo.Option{option}, err
	case a.TokenFile != "":
		return []natsgo.Option{natsgo.TokenHandler(read)}, nil
	case a.User != "":
		return []natsgo.Option{natsgo.UserInfoHandler(func() (string, string) { return a.User, read() })}, nil
	}
	return nil, nil
}

// rejected returns the error for credentials that the server rejects. err is an error from the server or from nats.go.
func (a *Auth) rejected(err error) *sinks.ConnectError {
	c, _ := a.read() // if read fails, only the claims are missing
	cause := "it refuses " + c.who
	switch {
	case c.file == "":
		cause = "it demands credentials, and none are configured"
	case errors.Is(err, natsgo.ErrNkeysNotSupported):
		cause = "it takes no nkeys and no JWTs, and is shown " + c.who
		c.remedy = "use what the server is configured for: nats.tokenFile, or nats.user and nats.passwordFile"
	case c.claims != nil && c.claims.Expires > 0 && time.Now().Unix() > c.claims.Expires:
		cause += ": the JWT expired on " + time.Unix(c.claims.Expires, 0).UTC().Format(time.RFC3339)
		c.remedy = "issue new credentials, and put them into nats.credentialsFile"
	case a.User != "":
		cause += ": wrong user or password"
	}
	return &sinks.ConnectError{
		Step:     sinks.StepAuthenticate,
		Key:      c.key,
		Remedy:   c.remedy,
		Err:      access.Words(err, "%s (%v)", cause, err),
		Rejected: true,
	}
}
