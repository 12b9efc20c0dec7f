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
	file    string        // the file with the secret; empty without authentication
	key     string        // the configuration key of the file
	who     string        // the identity of the client as the server knows it
	remedy  string        // the remedy if the server rejects the credentials
	option  natsgo.Option // lets nats.go read the file for every connection; nil without authentication
	expires time.Time     // of the JWT; zero if it does not expire
}

// read reads and checks the file with the secret. On error, c is complete except for what is read from the file. The
// error contains nothing from the content of the file.
func (a *Auth) read() (c credential, err error) {
	current := func() string { // if the file is missing, the secret is empty and the server rejects it
		secret, _ := access.Secret(c.key, c.file)
		return secret
	}
	switch {
	case a.CredentialsFile != "":
		c = credential{file: a.CredentialsFile, key: "nats.credentialsFile", who: "the credentials"}
		c.remedy = "check that the credentials in nats.credentialsFile belong to an account of this server and are neither expired nor revoked"
		c.option = natsgo.UserCredentials(c.file)
	case a.NkeyFile != "":
		c = credential{file: a.NkeyFile, key: "nats.nkeyFile", who: "the nkey"}
		c.remedy = "add that public key to the server's users, or correct the seed in nats.nkeyFile"
		c.option, _ = natsgo.NkeyOptionFromSeed(c.file) // the error would be the same as that of the check below
	case a.TokenFile != "":
		c = credential{file: a.TokenFile, key: "nats.tokenFile", who: "the token"}
		c.remedy = "check the content of nats.tokenFile"
		c.option = natsgo.TokenHandler(current)
	case a.User != "":
		c = credential{file: a.PasswordFile, key: "nats.passwordFile", who: fmt.Sprintf("user %q", a.User)}
		c.remedy = "check nats.user and the content of nats.passwordFile"
		c.option = natsgo.UserInfoHandler(func() (string, string) { return a.User, current() })
	default:
		c = credential{key: "nats.credentialsFile", who: "a client without credentials"}
		c.remedy = "set nats.credentialsFile, nats.nkeyFile, nats.tokenFile, or nats.user and nats.passwordFile"
		return c, nil
	}
	secret, err := access.Secret(c.key, c.file)
	if err != nil || a.CredentialsFile == "" && a.NkeyFile == "" {
		return c, err
	}
	public := ""
	pair, err := nkeys.ParseDecoratedUserNKey([]byte(secret))
	if err == nil {
		public, err = pair.PublicKey()
		pair.Wipe()
	}
	if err != nil {
		err = fmt.Errorf("%s does not contain the seed of a user nkey, which begins with SU", c.file)
		return c, &sinks.ConnectError{Step: sinks.StepFiles, Key: c.key, Err: err, Rejected: true}
	}
	c.who += " with the public key " + public
	token, _ := jwt.ParseDecoratedJWT([]byte(secret))
	if claims, err := jwt.DecodeUserClaims(token); err == nil && claims.Expires > 0 {
		c.expires = time.Unix(claims.Expires, 0)
	}
	return c, nil
}

// Who returns the identity of the client as the server knows it.
func (a *Auth) Who() string {
	c, _ := a.read() // who is set even if read fails
	return c.who
}

// rejected returns the error for credentials that the server rejects. err is an error from the server or from nats.go.
func (a *Auth) rejected(err error) *sinks.ConnectError {
	c, _ := a.read() // if read fails, only the public key is missing
	cause := "it rejects " + c.who
	switch {
	case c.file == "":
		cause = "it requires credentials"
	case errors.Is(err, natsgo.ErrNkeysNotSupported):
		cause = "it supports neither nkeys nor JWTs"
		c.remedy = "use nats.tokenFile, or nats.user and nats.passwordFile"
	}
	err = access.Words(err, "%s (%v)", cause, err)
	return &sinks.ConnectError{Step: sinks.StepAuthenticate, Key: c.key, Remedy: c.remedy, Err: err, Rejected: true}
}
