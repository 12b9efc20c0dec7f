package event

import (
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/docs/schemas"
	"github.com/deltabridge/deltabridge/internal/jsonpatch"
)

const (
	dataContentType   = "application/json"
	controlNamePrefix = "_" // prefix of a control event's name in templates: _gap, _synced, _progress
)

// CloudEventsType returns the value of the attribute "type".
func (t Type) CloudEventsType() string {
	if t > lastType {
		t = 0
	}
	return [...]string{
		"dev.deltabridge.unknown",
		Added:    "dev.deltabridge.object.added",
		Updated:  "dev.deltabridge.object.updated",
		Deleted:  "dev.deltabridge.object.deleted",
		Gap:      "dev.deltabridge.gap",
		Synced:   "dev.deltabridge.synced",
		Restated: "dev.deltabridge.object.restated",
		Progress: "dev.deltabridge.progress",
		Audit:    "dev.deltabridge.audit",
	}[t]
}

// Subject returns the value of the attribute "subject": <resource>[.<group>]/<namespace>/<name>. For a cluster-scoped
// object the namespace is empty, as in "nodes//n1". For a control event the subject consists only of the resource and
// group.
func (m *Message) Subject() string {
	if m.Type.IsControl() {
		return GroupResource(m.Resource)
	}
	return GroupResource(m.Resource) + "/" + m.Identity.Namespace + "/" + m.Identity.Name
}

// Attributes yields the names (without a prefix) and values of the CloudEvents context attributes, required attributes
// first. Values are strings, as in the binary content mode. Attributes without a value are omitted. Attributes can be
// used as an iterator: for name, value := range m.Attributes.
func (m *Message) Attributes(yield func(name, value string) bool) { m.attributes(true, yield) }

// Headers yields the attributes that are headers in the binary content mode: of a change, only those that the rest of
// the event does not contain.
func (m *Message) Headers(yield func(name, value string) bool) {
	m.attributes(m.Type.IsControl() || m.Type == Audit, yield)
}

func (m *Message) attributes(all bool, yield func(name, value string) bool) {
	id := &m.Identity
	flag := func(on bool) string {
		if on {
			return "true"
		}
		return ""
	}
	_ = yieldSet(yield, "specversion", "1.0") &&
		yieldSet(yield, "id", m.ID) &&
		yieldSet(yield, "source", "/clusters/"+m.Cluster) &&
		yieldSet(yield, "type", m.Type.CloudEventsType()) &&
		yieldSet(yield, "subject", m.Subject()) &&
		yieldSet(yield, "time", m.Time.UTC().Format(time.RFC3339Nano)) &&
		yieldSet(yield, "datacontenttype", dataContentType) &&
		yieldSet(yield, "dataschema", m.dataSchema()) &&
		(!all || yieldSet(yield, "cluster", m.Cluster)) &&
		yieldSet(yield, "clusteruid", m.ClusterUID) &&
		(!all || m.description(yield)) &&
		yieldSet(yield, "uid", string(id.UID)) &&
		yieldSet(yield, "resourceversion", id.ResourceVersion) &&
		yieldSet(yield, "changedby", id.Manager) &&
		yieldSet(yield, "initiallist", flag(m.InitialList)) &&
		yieldSet(yield, "finalstateunknown", flag(m.FinalStateUnknown)) &&
		yieldSet(yield, "leftfilter", flag(m.LeftFilter)) &&
		(m.Marks == nil || m.Marks.attributes(yield)) &&
		(m.Context == nil || m.Context.attributes(yield)) &&
		yieldSet(yield, "partitionkey", m.PartitionKey)
}

// description yields the operation and the parts of the subject.
func (m *Message) description(yield func(name, value string) bool) bool {
	id := &m.Identity
	var operation, apiVersion string
	if m.Type.IsControl() || m.Type == Audit {
		apiVersion = m.Resource.GroupVersion().String()
	} else {
		operation, apiVersion = m.Type.String(), id.APIVersion()
	}
	return yieldSet(yield, "operation", operation) &&
		yieldSet(yield, "apiversion", apiVersion) &&
		yieldSet(yield, "kind", id.Kind()) &&
		yieldSet(yield, "resource", m.Resource.Resource) &&
		yieldSet(yield, "namespace", id.Namespace) &&
		yieldSet(yield, "name", id.Name)
}

// dataSchema returns the URL of the JSON Schema of Data. It is empty for an object, because Kubernetes defines its form
// (ADR 37).
func (m *Message) dataSchema() string {
	switch {
	case m.Type == Gap:
		return schemas.BaseURL + "gap.json"
	case m.Type == Synced:
		return schemas.BaseURL + "synced.json"
	case m.Type == Progress:
		return schemas.BaseURL + "progress.json"
	case m.Type == Audit:
		return schemas.BaseURL + "audit.json"
	}
	switch m.Payload {
	case PayloadChange:
		return schemas.BaseURL + "change.json"
	case PayloadMetadata:
		return schemas.BaseURL + "metadata.json"
	case PayloadDebezium:
		return schemas.BaseURL + "debezium.json"
	}
	return ""
}

func yieldSet(yield func(name, value string) bool, name, value string) bool {
	return value == "" || yield(name, value)
}

// AppendStructured appends the CloudEvent in structured content mode, as a JSON object, to dst.
// Source: CloudEvents 1.0, JSON Event Format.
func (m *Message) AppendStructured(dst []byte) []byte {
	dst = append(dst, '{')
	for name, value := range m.Attributes {
		dst = appendAttribute(dst, name, value)
	}
	return append(append(jsonpatch.AppendKey(dst, "data"), m.Data...), '}')
}

// appendAttribute appends an attribute as a member of a JSON object.
func appendAttribute(dst []byte, name, value string) []byte {
	dst = jsonpatch.AppendKey(dst, name)
	if isBare(name, value) {
		return append(dst, value...)
	}
	return jsonpatch.AppendString(dst, value)
}

// isBare reports whether an attribute's value is a boolean or a number in JSON, rather than a string.
func isBare(name, value string) bool {
	switch name {
	case "initiallist", "finalstateunknown", "leftfilter":
		return value == "true"
	case "datasize":
		return value != "" && strings.Trim(value, "0123456789") == ""
	}
	return false
}
