package redact

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lastApplied is the annotation in which kubectl apply stores a copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// MinKey is the recommended minimum length of a key, in bytes.
const MinKey = 32

// Rule selects values to hide in some resources.
type Rule struct {
	Resources func(schema.GroupVersionResource) bool // if nil, the rule applies to all resources
	Paths     []Path
}

// Redactor replaces secret values with fingerprints. It is safe for concurrent use. A nil Redactor hides nothing.
type Redactor struct {
	key    []byte
	rules  []Rule
	secret []Path    // paths to hide in every Secret
	macs   sync.Pool // contains *mac
}

// New returns a Redactor that computes fingerprints with a copy of key. The key should have at least MinKey random
// bytes, because anyone who knows or guesses the key can test guesses of values. Fingerprints that were created with
// different keys cannot be compared.
func New(key []byte, rules ...Rule) *Redactor {
	r := &Redactor{key: bytes.Clone(key), rules: rules, secret: []Path{{"data"}, {"stringData"}}}
	r.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, r.key)} }
	// Annotations in which kapp, Rancher's wrangler and Banzai Cloud's operators store a copy of the whole object.
	for _, name := range []string{
		"kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied",
	} {
		r.secret = append(r.secret, Path{"metadata", "annotations", name})
	}
	return r
}

// DeriveKey returns a secret 32-byte key for another purpose. The key reveals nothing about the keys for other
// purposes.
func (r *Redactor) DeriveKey(purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, r.key, nil, "deltabridge "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return key, nil
}

var errForm = errors.New("its JSON is not valid") // does not quote the object

// Redact replaces the secret values in raw with fingerprints and returns the result. raw is the JSON of o, or a part of
// this JSON with the same top level. The package comment describes who owns the result. Redact returns an error if raw
// is not a single JSON object. In this case the caller must not use any part of raw. The error does not quote raw.
func (r *Redactor) Redact(resource schema.GroupVersionResource, o *object.Object, raw []byte) ([]byte, error) {
	if r == nil {
		return raw, nil
	}
	secret := isSecret(resource, o)
	paths := r.pathsOf(resource, secret)
	deep := secret || mayHoldApplied(raw)
	if len(paths) == 0 && !deep {
		return raw, nil
	}
	redacted, ok := r.newPass(Reference{resource, "", o.Namespace, o.Name}, raw, deep).document(paths)
	if !ok { // no event is better than a secret in plain text
		return nil, fmt.Errorf("cannot redact %s %s/%s: %w", resource.GroupResource(), o.Namespace, o.Name, errForm)
	}
	return redacted, nil
}

// newPass returns a pass over the JSON of an object. If deep is set, it looks for lastApplied at every depth.
func (r *Redactor) newPass(of Reference, raw []byte, deep bool) *pass {
	p := &pass{redactor: r, raw: raw, deep: deep}
	for _, part := range []string{of.Resource.Group, of.Resource.Resource, of.Namespace, of.Name} {
		p.place = append(binary.AppendUvarint(p.place, uint64(len(part))), part...)
	}
	return p
}

// Hide is like Redact, but always returns an object. If the object cannot be redacted, Hide returns an object that
// contains only the identity.
func (r *Redactor) Hide(resource schema.GroupVersionResource, o *object.Object, raw []byte) []byte {
	redacted, err := r.Redact(resource, o, raw)
	if err == nil {
		return redacted
	}
	metadata := map[string]string{"name": o.Name, "uid": string(o.UID), "resourceVersion": o.ResourceVersion}
	if o.Namespace != "" {
		metadata["namespace"] = o.Namespace
	}
	// Marshalling strings never fails.
	redacted, _ = json.Marshal(map[string]any{"apiVersion": o.APIVersion(), "kind": o.Kind(), "metadata": metadata})
	return redacted
}

// isSecret reports whether the object is a Secret. To be safe, it returns true if either the resource or the kind in
// the object is Secret.
func isSecret(resource schema.GroupVersionResource, o *object.Object) bool {
	if resource.Group == "" && resource.Resource == "secrets" {
		return true
	}
	gvk := o.GroupVersionKind()
	return gvk.Group == "" && strings.EqualFold(gvk.Kind, "Secret")
}

// pathsOf returns the paths to hide in the objects of the resource. The caller must not modify the result.
func (r *Redactor) pathsOf(resource schema.GroupVersionResource, secret bool) (paths []Path) {
	if secret {
		paths = slices.Clip(r.secret)
	}
	for _, rule := range r.rules {
		if rule.Resources == nil || rule.Resources(resource) {
			paths = append(paths, rule.Paths...)
		}
	}
	return paths
}

// mayHoldApplied reports whether a key in raw can be lastApplied. It searches for the part of the name that begins with
// the slash, because a slash is rare in objects, and for keys with escapes, which can stand for any character. It
// ignores escapes in values, for example line breaks.
func mayHoldApplied(raw []byte) bool {
	if bytes.Contains(raw, []byte("/last-applied-configuration")) {
		return true
	}
	for at := 0; ; {
		n := bytes.IndexByte(raw[at:], '\\')
		if n < 0 {
			return false
		}
		if at += n; at == 0 {
			return true // not JSON
		}
		if at = jsonscan.String(raw, at-1); at < 0 { // the rest of the string, which can have more escapes
			return true
		}
		if next := jsonscan.Space(raw, at); next < len(raw) && raw[next] == ':' {
			return true
		}
	}
}
