package kafka

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Audience is the audience that an access token must have.
const Audience = "kafka"

func (b *Broker) keysFile() string { return filepath.Join(b.dir, "keys.json") }

// makeTokenKey makes the key that signs access tokens, and writes its public part where the broker reads it (JWKS).
func (b *Broker) makeTokenKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	b.tokenKey = key
	point, err := key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		return err
	}
	keys, err := json.Marshal(map[string]any{"keys": []any{map[string]string{
		"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "test",
		"x": encode(point[1:33]), "y": encode(point[33:]),
	}}})
	return errors.Join(err, os.WriteFile(b.keysFile(), keys, 0o644))
}

// Token returns an access token of a subject with which the SASL listeners let a client in, if its audience is
// [Audience]. The broker takes it for half a minute longer than expires says.
func (b *Broker) Token(subject, audience string, expires time.Time) (string, error) {
	header, err := json.Marshal(map[string]string{"alg": "ES256", "kid": "test"})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(map[string]any{
		"sub": subject, "aud": audience, "exp": expires.Unix(), "iat": expires.Add(-time.Hour).Unix(),
	})
	if err != nil {
		return "", err
	}
	text := encode(header) + "." + encode(claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, b.tokenKey, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + encode(append(fixed(r), fixed(s)...)), nil
}

func encode(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

func fixed(n *big.Int) []byte { return n.FillBytes(make([]byte, 32)) }
