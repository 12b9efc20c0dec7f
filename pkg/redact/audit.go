package redact

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/jsonscan"
)

// Reference says which object a request is about, like the objectRef of an audit event.
type Reference struct {
	Resource                     schema.GroupVersionResource
	Subresource, Namespace, Name string
}

// The members of an audit event that can contain secret values.
const (
	requestObject  = "requestObject"
	responseObject = "responseObject"
	responseStatus = "responseStatus"
	annotations    = "annotations"
	// webhookPatches begins the names of annotations that contain what mutating webhooks have changed.
	webhookPatches = "patch.webhook.admission.k8s.io/"
)

// Audit is like Redact for an audit event: it redacts the objects in the request and in the response, which are about
// of. They may be lists, tables and patches. The fingerprints of a whole object are those that Redact gives it. An
// object that cannot be redacted is replaced with null.
func (r *Redactor) Audit(of Reference, raw []byte) ([]byte, error) {
	if r == nil {
		return raw, nil
	}
	var out []byte
	done := 0
	w := jsonscan.Open(raw, 0, '{')
	for w.Next() {
		name, start := string(w.Key), w.Pos
		value := w.Value()
		if w.Bad {
			break
		}
		redacted := value
		switch { // as in Redact, letter case does not matter
		case strings.EqualFold(name, requestObject), strings.EqualFold(name, responseObject):
			redacted = r.auditObject(of, value)
		case strings.EqualFold(name, responseStatus):
			redacted = r.auditStatus(of, value)
		case strings.EqualFold(name, annotations):
			redacted = r.auditAnnotations(of, value)
		}
		if !bytes.Equal(redacted, value) {
			out, done = append(append(out, raw[done:start]...), redacted...), w.Pos
		}
	}
	if w.End() < 0 { // no event is better than a secret in plain text
		return nil, fmt.Errorf("cannot redact an audit event of %s %s/%s: %w", of.Resource.GroupResource(), of.Namespace,
			of.Name, errForm)
	}
	if done == 0 {
		return raw, nil
	}
	return append(out, raw[done:]...), nil
}

// auditObject redacts the object in a request or response.
func (r *Redactor) auditObject(of Reference, raw []byte) []byte {
	paths := r.auditPaths(of, raw)
	// A JSON patch names the annotation in a value, where mayHoldApplied ignores escapes.
	deep := bytes.Contains(raw, []byte("last-applied-configuration")) || bytes.Contains(raw, []byte(`\u`)) ||
		mayHoldApplied(raw)
	if len(paths) == 0 && !deep {
		return raw
	}
	redacted, ok := []byte(nil), false
	switch raw[0] {
	case '{':
		redacted, ok = r.newPass(of, raw, true).document(slices.Concat(paths, inLists(paths)))
	case '[': // a JSON patch, whose operations name the value by its path
		redacted, ok = r.newPass(of, raw, true).all('[', []Path{{"", "value"}})
	}
	if !ok {
		return []byte("null")
	}
	return redacted
}

// inLists returns the paths to the same values in the objects of a list and of a table. The cells of a table can
// contain the values too.
func inLists(paths []Path) (all []Path) {
	if len(paths) == 0 {
		return nil
	}
	for _, path := range paths {
		all = append(all, slices.Concat(Path{"items"}, path), slices.Concat(Path{"rows", "object"}, path))
	}
	return append(all, Path{"rows", "cells"})
}

// auditPaths returns the paths to hide in an object of a request or response.
func (r *Redactor) auditPaths(of Reference, raw []byte) []Path {
	paths := r.pathsOf(of.Resource, isSecretKind(of, raw))
	switch group, name := of.Resource.Group, of.Resource.Resource; {
	case group == "" && name == "serviceaccounts" && of.Subresource == "token":
		paths = append(slices.Clip(paths), Path{"status", "token"})
	case group == "authentication.k8s.io" && name == "tokenreviews":
		paths = append(slices.Clip(paths), Path{"spec", "token"})
	}
	if len(paths) > 0 && isInvalid(raw) {
		paths = append(slices.Clip(paths), invalidPaths()...)
	}
	return paths
}

// isInvalid reports whether a Status refuses an object because of its contents. Its text can quote these.
func isInvalid(status []byte) bool { return string(jsonscan.Member(status, "code")) == "422" }

func invalidPaths() []Path { return []Path{{"message"}, {"details", "causes"}} }

// auditStatus redacts the Status of a response.
func (r *Redactor) auditStatus(of Reference, raw []byte) []byte {
	if len(r.auditPaths(of, nil)) == 0 || !isInvalid(raw) {
		return raw
	}
	redacted, ok := r.newPass(of, raw, false).document(invalidPaths())
	if !ok {
		return []byte("null")
	}
	return redacted
}

// isSecretKind is like isSecret for an object in a request or response, which may be a list.
func isSecretKind(of Reference, raw []byte) bool {
	kind := strings.TrimSuffix(strings.ToLower(string(jsonscan.Text(jsonscan.Member(raw, "kind")))), "list")
	return of.Resource.Group == "" && of.Resource.Resource == "secrets" || kind == "secret"
}

// auditAnnotations hides the annotations of an audit event that contain parts of an object.
func (r *Redactor) auditAnnotations(of Reference, raw []byte) []byte {
	var paths []Path
	w := jsonscan.Open(raw, 0, '{')
	for key, value := range w.All {
		// The value is a JSON document in a string.
		text := jsonscan.Text(value)
		if !strings.HasPrefix(string(key), webhookPatches) {
			continue
		}
		if len(r.auditPaths(of, nil)) > 0 || bytes.Contains(text, []byte("last-applied-configuration")) {
			paths = append(paths, Path{string(key)})
		}
	}
	if len(paths) == 0 {
		return raw
	}
	redacted, ok := r.newPass(of, raw, false).document(paths)
	if !ok {
		return []byte("null")
	}
	return redacted
}
