package event

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/deltabridge/deltabridge/pkg/object"
)

// lastApplied is the annotation in which kubectl apply repeats the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// Redactor replaces the values of Secrets by keyed fingerprints, so that a change of a value stays visible while
// the value never leaves. It is safe for concurrent use.
type Redactor struct{ key []byte }

// NewRedactor makes fingerprints with HMAC-SHA256 under key, which should have at least 32 random bytes. Equal
// values have equal fingerprints under one key, and unrelated ones under another.
func NewRedactor(key []byte) *Redactor { return &Redactor{key: append([]byte(nil), key...)} }

// fingerprint of a JSON value. 16 of HMAC's 32 bytes: collisions stay out of reach, the text stays short.
func (r *Redactor) fingerprint(value []byte) json.RawMessage {
	mac := hmac.New(sha256.New, r.key)
	mac.Write(value)
	sum := mac.Sum(nil)
	return json.RawMessage(`"hmac-sha256:` + hex.EncodeToString(sum[:16]) + `"`)
}

// redact returns o's bytes with the values of a Secret's data and stringData, and of its last-applied-configuration
// (which repeats them), replaced by fingerprints. Other objects' bytes are returned as they are. Keys stay: they
// are what people recognise a Secret by.
func (r *Redactor) redact(o *object.Object) ([]byte, error) {
	raw, err := o.Bytes()
	if err != nil || r == nil || o.Kind() != "Secret" || o.APIVersion() != "v1" {
		return raw, err
	}
	redacted, err := r.redactSecret(raw)
	if err != nil {
		// Rather no event than a value in clear. The cause may quote the document, so it is not passed on.
		return nil, fmt.Errorf("secret %s/%s can't be redacted: its JSON has an unexpected form", o.Namespace, o.Name)
	}
	return redacted, nil
}

func (r *Redactor) redactSecret(raw []byte) ([]byte, error) {
	doc := map[string]json.RawMessage{}
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	for _, field := range []string{"data", "stringData"} {
		if err := rewrite(doc, field, func(values map[string]json.RawMessage) error {
			for k, v := range values {
				values[k] = r.fingerprint(v)
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	err := rewrite(doc, "metadata", func(metadata map[string]json.RawMessage) error {
		return rewrite(metadata, "annotations", func(annotations map[string]json.RawMessage) error {
			if v, ok := annotations[lastApplied]; ok {
				annotations[lastApplied] = r.fingerprint(v)
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

// rewrite decodes the object doc[field], lets f change it and puts it back. An absent or null field is left alone.
func rewrite(doc map[string]json.RawMessage, field string, f func(map[string]json.RawMessage) error) error {
	value, ok := doc[field]
	if !ok {
		return nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(value, &members); err != nil {
		return err
	}
	if members == nil {
		return nil
	}
	if err := f(members); err != nil {
		return err
	}
	out, err := json.Marshal(members)
	doc[field] = out
	return err
}
