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
	"github.com/deltabridge/deltabridge/pkg/pattern"
	"github.com/deltabridge/deltabridge/pkg/redact"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Redaction configures where secret values are replaced with fingerprints. If no sink is configured to receive secret
// values in clear text, they are replaced as soon as an object is read, and no later step has access to them. If at
// least one sink receives them in clear text, objects pass through the process unchanged. In this case the filters and
// encoders of all other sinks hide the values, and so do the rows of the checkpoint.
type Redaction struct {
	Redactor *redact.Redactor
	Privacy  checkpoint.Privacy
	plain    bool // whether a sink receives secret values in clear text
}

// newRedaction reads the fingerprint key and returns the Redaction. At the first start it creates the key.
func newRedaction(cfg *config.Config) (*Redaction, error) {
	key, err := redactionKey(cfg)
	if err != nil {
		return nil, err
	}
	return redactionWith(cfg, key)
}

// redactionWith is like newRedaction, but uses the given key.
func redactionWith(cfg *config.Config, key []byte) (*Redaction, error) {
	rules, err := redactionRules(cfg)
	if err != nil {
		return nil, err
	}
	r := &Redaction{Redactor: redact.New(key, rules...)}
	for n := range cfg.Sinks {
		r.plain = r.plain || plain(&cfg.Sinks[n])
	}
	r.Privacy = checkpoint.Privacy{Redact: func(gvr schema.GroupVersionResource, o *object.Object) []byte {
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

// Transform returns the function that informers call for every object that they read. It returns nil if objects are not
// changed.
func (r *Redaction) Transform() func(schema.GroupVersionResource, *object.Object) {
	if r.plain {
		return nil
	}
	return func(gvr schema.GroupVersionResource, o *object.Object) {
		o.Raw, o.Hidden = r.Redactor.Hide(gvr, o, o.Raw), true
	}
}

// ForSink returns the redactor that hides secret values from a sink. It returns nil if the sink receives them in clear
// text.
func (r *Redaction) ForSink(s *config.Sink) *redact.Redactor {
	if plain(s) {
		return nil
	}
	return r.Redactor
}

// plain reports whether a sink receives secret values in clear text.
func plain(s *config.Sink) bool { return s.Secrets == config.SecretsPlain }

// seen returns a function that returns the bytes of an object as a sink's filter sees them, with the same values hidden
// as in the sink's messages. It returns nil if r is nil: the filter then sees the whole object.
func seen(r *redact.Redactor) engine.Bytes {
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
		patterns := pattern.ParseResources(c.Resources)
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

// policyName returns a name that changes when the rows of the checkpoint must be rewritten: when the key, the rules or
// the sealing changes. The key cannot be derived from the name.
func policyName(r *redact.Redactor, rules []config.Redact, plain bool) (string, error) {
	text, err := json.Marshal(struct {
		Version int // version of the built-in redaction, which applies without rules
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

// fingerprintKeyFile is the file in the state directory that contains the fingerprint key if the configuration does not
// name a key file.
const fingerprintKeyFile = "fingerprint.key"

// redactionKey reads the fingerprint key from the configured file, or from the state directory.
func redactionKey(cfg *config.Config) ([]byte, error) {
	path, setting, remedy := cfg.RedactionKeyFile, "redactionKeyFile", "create a key with openssl rand -hex 32"
	if path == "" {
		path, setting = filepath.Join(cfg.State.Path, fingerprintKeyFile), "state.path"
		remedy = "restore the file, or remove it for a new key, which changes all fingerprints"
	}
	key, err := os.ReadFile(path)
	if cfg.RedactionKeyFile == "" && errors.Is(err, fs.ErrNotExist) {
		key, err = makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: cannot read or create the key for fingerprints of secret values: %w", setting, err)
	}
	// Editors add a newline at the end.
	if text := bytes.TrimRight(key, "\r\n"); cfg.RedactionKeyFile != "" && len(text) >= redact.MinKey {
		key = text
	}
	if len(key) < redact.MinKey {
		return nil, fmt.Errorf("%s: %s has %d bytes, at least %d are required; %s",
			setting, path, len(key), redact.MinKey, remedy)
	}
	return key, nil
}

// makeKey writes a new key. The file is written completely or not at all.
func makeKey(path string) ([]byte, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails (crypto/rand)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	return key, files.WriteFile(path, key)
}
