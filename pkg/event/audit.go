package event

import (
	"bytes"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
	"github.com/deltabridge/deltabridge/internal/jsonscan"
	"github.com/deltabridge/deltabridge/pkg/redact"
)

// AuditInfo is an audit event of an API server.
type AuditInfo struct {
	ID string
	// Object says what the request was about. It is empty for a request that is not about a resource.
	Object redact.Reference
	Raw    []byte // one JSON object, as it arrived
}

// AuditResource returns the resource of the audit events themselves. Gap events in a stream of audit events have it,
// and so do audit events of requests that are not about a resource.
func AuditResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "audit.k8s.io", Version: "v1", Resource: "events"}
}

const (
	auditHead = `{"kind":"Event","apiVersion":"audit.k8s.io/v1"`
	// truncated is the annotation that an API server adds to an event of which it has removed the objects.
	truncated = "audit.k8s.io/truncated"
	// longestName and longestLabel are the longest names of Kubernetes: of most objects and of API groups, and of
	// namespaces, resources and versions.
	longestName, longestLabel = 253, 63
)

// encodeAudit sets the parts of a message that contains an audit event.
func (e *Encoder) encodeAudit(m *Message, a *AuditInfo) (err error) {
	m.ID, m.Resource = a.ID, AuditResource()
	if o := &a.Object; o.Resource.Resource != "" {
		m.Resource.Group = namePart(o.Resource.Group, longestName)
		m.Resource.Version = namePart(o.Resource.Version, longestLabel)
		m.Resource.Resource = namePart(o.Resource.Resource, longestLabel)
		m.Identity.Namespace = namePart(o.Namespace, longestLabel)
		m.Identity.Name = namePart(o.Name, longestName)
	}
	if e.PartitionKey != nil {
		m.PartitionKey = e.PartitionKey.Expand(m)
	}
	raw, err := e.Redactor.Audit(a.Object, a.Raw)
	if err == nil {
		m.Data = completeAudit(raw)
	}
	return err
}

// namePart returns a part of an audit event's objectRef in a form that is suitable for subjects, topics, keys and
// headers. A client that requests something that does not exist can choose it freely, so it may be of any length and
// contain any characters. The data has it as it is.
func namePart(text string, longest int) string {
	text = strings.ToValidUTF8(text[:min(len(text), longest)], "")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '/' {
			return '-'
		}
		return r
	}, text)
}

// completeAudit returns an audit event with its kind and apiVersion, which it does not have in a list.
func completeAudit(raw []byte) []byte {
	dst := append(make([]byte, 0, len(auditHead)+len(raw)+1), auditHead...)
	w := jsonscan.Open(raw, 0, '{')
	for key, value := range w.All {
		if name := string(key); name != "kind" && name != "apiVersion" {
			dst = append(jsonpatch.AppendKey(dst, name), value...)
		}
	}
	return append(dst, '}')
}

// reducedAudit returns an audit event without its objects, and marked as API servers do it.
func reducedAudit(data []byte) ([]byte, error) {
	dst := append(make([]byte, 0, len(data)), '{')
	annotations := []byte("{")
	w := jsonscan.Open(data, 0, '{')
	for key, value := range w.All {
		switch string(key) {
		case "requestObject", "responseObject":
		case "annotations":
			if value[0] == '{' {
				annotations = bytes.TrimRight(value[:len(value)-1], " \t\r\n")
			}
		default:
			dst = append(jsonpatch.AppendKey(dst, string(key)), value...)
		}
	}
	dst = append(jsonpatch.AppendKey(dst, "annotations"), annotations...)
	dst = append(jsonpatch.AppendKey(dst, truncated), `"true"}`...)
	return append(dst, '}'), nil
}
