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

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lastApplied is the annotation in which kubectl apply repeats the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// MinKey is the minimum length of a key, in bytes.
const MinKey = 32

// Rule names values to hide in some resources.
type Rule struct {
	Resources func(schema.GroupVersionResource) bool // nil: all
	Paths     []Path
}

// Redactor replaces secret values with fingerprints. It is safe for concurrent use. A nil Redactor hides nothing.
type Redactor struct {
	key     []byte
	rules   []Rule
	secret  []Path    // what is hidden in each Secret
	applied []byte    // lastApplied
	macs    sync.Pool // of *mac
	paths   sync.Map  // schema.GroupVersionResource -> []Path
}

// New returns a Redactor that makes fingerprints with a copy of key. The key should have at least MinKey random bytes:
// anyone who knows the key can try guesses. Fingerprints made with different keys cannot be compared.
func New(key []byte, rules ...Rule) *Redactor {
	r := &Redactor{key: bytes.Clone(key), rules: rules, applied: []byte(lastApplied)}
	r.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, r.key)} }
	r.secret = []Path{{[]byte("data")}, {[]byte("stringData")}}
	// Annotations in which kapp, Rancher's wrangler and Banzai Cloud's operators repeat the whole object.
	for _, name := range []string{
		"kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied",
	} {
		r.secret = append(r.secret, Path{[]byte("metadata"), []byte("annotations"), []byte(name)})
	}
	return r
}

// DeriveKey returns a secret key of 32 bytes for another purpose. It reveals nothing about the keys of other purposes.
func (r *Redactor) DeriveKey(purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, r.key, nil, "deltabridge "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return key, nil
}

var errForm = errors.New("its JSON has an unexpected form") // does not quote the document

// Redact returns raw with secret values replaced by fingerprints. raw is the JSON of o, or a part of it with the same
// top level. The package comment says who owns the result. Redact returns an error if raw is not one JSON object; then
// no part of raw must be used. The error does not quote raw.
func (r *Redactor) Redact(resource schema.GroupVersionResource, o *object.Object, raw []byte) ([]byte, error) {
	if r == nil {
		return raw, nil
	}
	secret := isSecret(resource, o)
	paths := r.pathsOf(resource, secret)
	deep := secret || !shortKeys(o) && mayHoldApplied(raw)
	if len(paths) == 0 && !deep {
		return raw, nil
	}
	p := pass{redactor: r, raw: raw, deep: deep}
	for _, part := range []string{resource.Group, resource.Resource, o.Namespace, o.Name} {
		p.place = append(binary.AppendUvarint(p.place, uint64(len(part))), part...)
	}
	redacted, ok := p.document(paths)
	if !ok { // better no event than a secret in plain text
		return nil, fmt.Errorf("cannot redact %s %s/%s: %w", resource.GroupResource(), o.Namespace, o.Name, errForm)
	}
	return redacted, nil
}

// Hide is like Redact, but always returns an object: one with only its identity if it cannot be redacted.
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

// isSecret reports whether an object is a Secret. To be safe, both the resource and the object's own kind count.
func isSecret(resource schema.GroupVersionResource, o *object.Object) bool {
	if resource.Group == "" && resource.Resource == "secrets" {
		return true
	}
	gvk := o.GroupVersionKind()
	return gvk.Group == "" && strings.EqualFold(gvk.Kind, "Secret")
}

// pathsOf returns the paths to hide in the objects of a resource. The result must not be modified.
func (r *Redactor) pathsOf(resource schema.GroupVersionResource, secret bool) []Path {
	var paths []Path
	if len(r.rules) > 0 { // a look into the map would cost an allocation
		found, ok := r.paths.Load(resource)
		if !ok {
			for _, rule := range r.rules {
				if rule.Resources == nil || rule.Resources(resource) {
					paths = append(paths, rule.Paths...)
				}
			}
			found, _ = r.paths.LoadOrStore(resource, paths)
		}
		paths, _ = found.([]Path)
	}
	switch {
	case !secret:
		return paths
	case len(paths) == 0:
		return r.secret
	}
	return slices.Concat(r.secret, paths)
}

// shortKeys reports whether all keys of an object are shorter than lastApplied. In nearly all other objects they are.
func shortKeys(o *object.Object) bool {
	return o.LongestKey > 0 && int(o.LongestKey) < len(lastApplied)
}

// mayHoldApplied reports whether raw may contain lastApplied. It searches for a part of the name that begins with a
// character that is rare in objects.
func mayHoldApplied(raw []byte) bool {
	if bytes.Contains(raw, []byte("/last-applied-configuration")) {
		return true
	}
	// The name may be written with escapes. Most escapes, of newlines and quotes, cannot be part of it.
	for rest := raw; ; {
		at := bytes.IndexByte(rest, '\\')
		if at < 0 || at+1 == len(rest) {
			return false
		}
		if c := rest[at+1]; c == '/' || c == 'u' {
			return true
		}
		rest = rest[at+2:]
	}
}
