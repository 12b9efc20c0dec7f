package event

import (
	"bytes"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
)

// Patch is the form of the difference between two states in the payload "change".
type Patch string

const (
	// PatchJSON is a JSON Patch (RFC 6902): a list of operations. It is exact.
	PatchJSON Patch = "json"
	// PatchMerge is a JSON Merge Patch (RFC 7386): a partial document. It replaces lists as a whole, and cannot
	// distinguish a member that became null from one that was removed.
	PatchMerge Patch = "merge"
)

// changeOverhead is what the data of a change has besides its documents and its patch, in bytes: for the first
// allocation.
const changeOverhead = 512

// change returns the data of PayloadChange. It compares the redacted objects, so that a patch contains no secret value.
func (e *Encoder) change(ev *Event) ([]byte, error) {
	object, err := e.bytes(ev.Resource, ev.Object)
	if err != nil {
		return nil, err
	}
	old, err := e.visibleOld(ev)
	if err != nil {
		return nil, err
	}
	dst := make([]byte, 0, len(object)+len(old)+len(object)/4+changeOverhead)
	dst = append(append(dst, operationMember...), ev.Type.String()...)
	dst = append(append(dst, `","object":`...), object...)
	if old == nil {
		dst = append(dst, `,"old":null,"patch":null,"changedPaths":[],"managers":`...)
		var managers []manager
		if ev.Type != Deleted { // the API server does not record who deletes; a restated object has no managedFields
			managers = managersOf(ev.Object.ManagedFieldsJSON())
		}
		return append(appendManagers(dst, managers), '}'), nil
	}
	dst = append(append(dst, `,"old":`...), old...)
	dst = append(dst, `,"patch":`...)
	changes := jsonpatch.Diff(old, object)
	if e.Patch == PatchMerge {
		dst = jsonpatch.AppendMerge(dst, old, object)
	} else {
		dst = jsonpatch.AppendPatch(dst, changes)
	}
	dst = append(dst, `,"changedPaths":[`...)
	for n := range changes {
		if isResourceVersion(changes[n].Path) {
			continue
		}
		if dst[len(dst)-1] != '[' {
			dst = append(dst, ',')
		}
		dst = jsonpatch.AppendString(dst, changes[n].Pointer())
	}
	dst = append(dst, `],"managers":`...)
	dst = appendManagers(dst, ownersOf(ev.Object.ManagedFieldsJSON(), changes))
	return append(dst, '}'), nil
}

// visibleOld returns the redacted state before an update. It returns nil for other events, and if the bytes of that
// state are not available: the change is then sent without them.
func (e *Encoder) visibleOld(ev *Event) ([]byte, error) {
	if ev.Type != Updated || ev.Old == nil {
		return nil, nil
	}
	_, missing := ev.Old.Bytes()
	if missing == nil {
		return e.bytes(ev.Resource, ev.Old)
	}
	if e.OnOldMissing != nil {
		e.OnOldMissing(missing)
	}
	return nil, nil
}

// isResourceVersion reports whether path leads to metadata.resourceVersion, which differs after each change.
func isResourceVersion(path []jsonpatch.Segment) bool {
	return len(path) == 2 && path[0].Name == "metadata" && path[1].Name == "resourceVersion"
}

// operationMember is the beginning of the data of each change. The data of an object never begins so.
const operationMember = `{"operation":"`

// retold returns the data of a change with another operation. It returns other data unchanged.
func retold(data []byte, from, to Type) []byte {
	rest, ok := bytes.CutPrefix(data, []byte(operationMember+from.String()+`"`))
	if !ok {
		return data
	}
	return append([]byte(operationMember+to.String()+`"`), rest...)
}
