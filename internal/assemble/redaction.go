package assemble

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Redaction is what becomes of secret values on their way: with no sink that wants them in clear they are replaced as
// soon as an object is read, and nothing behind that knows them. With one, objects go through the process as they are;
// each other sink's filter and encoder, and the rows of the checkpoint, hide them.
type Redaction struct {
	Redactor *redact.Redactor
	Privacy  *checkpoint.Privacy
	plain    bool // a sink wants them in clear
}

// NewRedaction reads the key, or makes one at the first start.
func NewRedaction(cfg *config.Config) (*Redaction, error) {
	key, err := redactionKey(cfg)
	if err != nil {
		return nil, err
	}
	return RedactionWith(cfg, key)
}

// RedactionWith is NewRedaction with a key.
func RedactionWith(cfg *config.Config, key []byte) (*Redaction, error) {
	rules, err := redactionRules(cfg)
	if err != nil {
		return nil, err
	}
	r := &Redaction{Redactor: redact.New(key, rules...)}
	for n := range cfg.Sinks {
		r.plain = r.plain || plain(&cfg.Sinks[n])
	}
	r.Privacy = &checkpoint.Privacy{Redact: func(gvr schema.GroupVersionResource, o *object.Object) []byte {
		return r.Redactor.Hide(gvr, o, o.Raw)
	}}
	if r.plain {
		if r.Privacy.Seal, err = rowCipher(r.Redactor); err != nil {
			return nil, err
		}
	}
	r.Privacy.Name, err = policyName(r.Redactor, cfg.Redact, r.plain)
	return r, err
}

// Transform is the informers'. Nil: objects stay as they are.
func (r *Redaction) Transform() func(schema.GroupVersionResource, *object.Object) {
	if r.plain {
		return nil
	}
	return func(gvr schema.GroupVersionResource, o *object.Object) {
		o.Raw, o.Hidden = r.Redactor.Hide(gvr, o, o.Raw), true
	}
}

// ForSink is what hides values from a sink; nil if it wants them in clear.
func (r *Redaction) ForSink(s *config.Sink) *redact.Redactor {
	if plain(s) {
		return nil
	}
	return r.Redactor
}

// plain reports whether a sink gets secret values in clear.
func plain(s *config.Sink) bool { return s.Secrets == config.SecretsPlain }

// Seen gives what a sink's filter sees of an object: what the sink is sent. Nil: what there is.
func Seen(r *redact.Redactor) engine.Bytes {
	if r == nil {
		return nil
	}
	return func(gvr schema.GroupVersionResource, o *object.Object) ([]byte, error) {
		raw, err := o.Bytes()
		if err != nil || o.Hidden {
			return raw, err
		}
		return r.Redact(gvr, o, raw)
	}
}

func redactionRules(cfg *config.Config) ([]redact.Rule, error) {
	var rules []redact.Rule
	for _, c := range cfg.Redact {
		patterns := config.ParsePatterns(c.Resources)
		rule := redact.Rule{Resources: func(gvr schema.GroupVersionResource) bool {
			return len(c.Resources) == 0 || patterns.Match(gvr)
		}}
		for _, text := range c.Paths {
			path, err := redact.ParsePath(text)
			if err != nil {
				return nil, err
			}
			rule.Paths = append(rule.Paths, path)
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// policyName tells, without telling the key, when rows of the checkpoint have to be written anew.
func policyName(r *redact.Redactor, rules []config.Redact, plain bool) (string, error) {
	text, err := json.Marshal(struct {
		Version int // of what is hidden without rules
		Rules   []config.Redact
		Plain   bool
	}{1, rules, plain})
	if err != nil {
		return "", err
	}
	name, err := r.DeriveKey("policy " + string(text))
	return hex.EncodeToString(name[:16]), err
}

func rowCipher(r *redact.Redactor) (cipher.AEAD, error) {
	key, err := r.DeriveKey("checkpoint rows")
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// fingerprintKeyFile, in the state folder, holds the key if the configuration names no file.
const fingerprintKeyFile = "fingerprint.key"

func redactionKey(cfg *config.Config) ([]byte, error) {
	if path := cfg.RedactionKeyFile; path != "" {
		key, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("redactionKeyFile: %w", err)
		}
		if trimmed := bytes.TrimRight(key, "\r\n"); len(trimmed) >= redact.MinKey { // an editor's
			key = trimmed
		}
		if len(key) < redact.MinKey {
			return nil, fmt.Errorf(
				"redactionKeyFile: %s has %d bytes, at least %d are needed (make one: openssl rand -hex 32)",
				path,
				len(key),
				redact.MinKey,
			)
		}
		return key, nil
	}
	path := filepath.Join(cfg.State.Path, fingerprintKeyFile)
	key, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf(
			"key for the fingerprints of secret values: %w (state.path must be a folder that the bridge can write to)",
			err,
		)
	}
	if len(key) < redact.MinKey {
		return nil, fmt.Errorf(
			"%s: the key has %d bytes, at least %d are needed (restore the file, or remove it for a new key: all fingerprints change then)",
			path,
			len(key),
			redact.MinKey,
		)
	}
	return key, nil
}

// makeKey writes a new key. The file appears whole or not at all.
func makeKey(path string) ([]byte, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return key, files.WriteFile(path, key)
}
