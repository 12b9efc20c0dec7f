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
	"strings"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/object"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lastApplied is the annotation in which kubectl apply repeats the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// MinKey is how many bytes a key needs at least.
const MinKey = 32

// Rule names values of some resources that are to be hidden.
type Rule struct {
	Resources func(schema.GroupVersionResource) bool // nil: all
	Paths     []Path
}

// Redactor replaces secret values by fingerprints. It is safe for concurrent use. A nil Redactor hides nothing.
type Redactor struct {
	key     []byte
	rules   []Rule
	applied []byte    // lastApplied
	macs    sync.Pool // of *mac
	paths   sync.Map  // schema.GroupVersionResource -> [][]step
}

// New makes fingerprints under key, of which it keeps a copy. The key should have MinKey random bytes or more: whoever
// knows it can try guesses. Fingerprints under two keys have nothing to do with each other.
func New(key []byte, rules ...Rule) *Redactor {
	r := &Redactor{key: bytes.Clone(key), rules: rules, applied: []byte(lastApplied)}
	r.macs.New = func() any { return &mac{hash: hmac.New(sha256.New, r.key)} }
	return r
}

// DeriveKey gives 32 bytes that are secret as the key is, for another purpose. Purposes do not tell of each other.
func (r *Redactor) DeriveKey(purpose string) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, r.key, nil, "deltabridge "+purpose, 32)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	return key, nil
}

// errForm does not quote the document.
var errForm = errors.New("its JSON has an unexpected form")

// Redact gives raw, which is o's JSON or a part of it with the same top level, with fingerprints in the place of what is to
// be hidden. See the package comment for who owns the result. An error means that raw is not one JSON object; it does not
// quote it, and nothing of it may be used.
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
	if !ok { // rather no event than a value in clear
		return nil, fmt.Errorf("%s %s/%s can't be redacted: %w", resource.GroupResource(), o.Namespace, o.Name, errForm)
	}
	return redacted, nil
}

// Hide is Redact where something has to be there in any case: an object that can't be redacted becomes one that has
// nothing but its identity.
func (r *Redactor) Hide(resource schema.GroupVersionResource, o *object.Object, raw []byte) []byte {
	redacted, err := r.Redact(resource, o, raw)
	if err == nil {
		return redacted
	}
	var bare struct {
		APIVersion string            `json:"apiVersion,omitempty"`
		Kind       string            `json:"kind,omitempty"`
		Metadata   map[string]string `json:"metadata"`
	}
	bare.APIVersion, bare.Kind = o.APIVersion(), o.Kind()
	bare.Metadata = map[string]string{"name": o.Name, "uid": string(o.UID), "resourceVersion": o.ResourceVersion}
	if o.Namespace != "" {
		bare.Metadata["namespace"] = o.Namespace
	}
	redacted, err = json.Marshal(bare)
	if err != nil {
		return []byte("{}") // strings always marshal
	}
	return redacted
}

// isSecret errs on the safe side: what is called a Secret, by the API server or by itself, is one.
func isSecret(resource schema.GroupVersionResource, o *object.Object) bool {
	if resource.Group == "" && resource.Resource == "secrets" {
		return true
	}
	gvk := o.GroupVersionKind()
	return gvk.Group == "" && strings.EqualFold(gvk.Kind, "Secret")
}

// pathsOf is what to look for in the objects of a resource. Nobody writes to it.
func (r *Redactor) pathsOf(resource schema.GroupVersionResource, secret bool) [][]step {
	var found any // to ask the map costs an allocation
	ok := len(r.rules) == 0
	if !ok {
		found, ok = r.paths.Load(resource)
	}
	if !ok {
		var paths [][]step
		for _, rule := range r.rules {
			if rule.Resources == nil || rule.Resources(resource) {
				for _, p := range rule.Paths {
					paths = append(paths, p.steps)
				}
			}
		}
		found, _ = r.paths.LoadOrStore(resource, paths)
	}
	paths, _ := found.([][]step)
	if !secret {
		return paths
	}
	return append(secretPaths(), paths...)
}

// secretPaths is what is hidden in each Secret: its values, and the annotations in which tools repeat it: kapp, Rancher's
// wrangler and Banzai Cloud's operators.
func secretPaths() [][]step {
	paths := [][]step{{{name: []byte("data")}}, {{name: []byte("stringData")}}}
	for _, annotation := range []string{"kapp.k14s.io/original", "objectset.rio.cattle.io/applied", "banzaicloud.com/last-applied"} {
		paths = append(paths, []step{{name: []byte("metadata")}, {name: []byte("annotations")}, {name: []byte(annotation)}})
	}
	return paths
}

// shortKeys reports whether no key of an object is as long as that of kubectl apply, which nearly no other key reaches.
func shortKeys(o *object.Object) bool {
	return o.LongestKey > 0 && int(o.LongestKey) < len(lastApplied)
}

// mayHoldApplied reports whether lastApplied can stand in raw. It looks at all bytes: for a part of the name that begins
// with a character that is rare in objects.
func mayHoldApplied(raw []byte) bool {
	if bytes.Contains(raw, []byte("/last-applied-configuration")) {
		return true
	}
	// It can be written with escapes. Those that objects are full of, of newlines and quotes, do not count.
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
