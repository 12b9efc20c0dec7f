package event

import (
	"encoding/json"
	"slices"

	"github.com/deltabridge/deltabridge/internal/jsonpatch"
)

// change returns the data for PayloadChange. It compares the redacted objects, so a patch never contains a secret
// value.
func (e *Encoder) change(ev *Event) ([]byte, error) {
	object, err := e.bytes(ev.Resource, ev.Object)
	if err != nil {
		return nil, err
	}
	old, err := e.visibleOld(ev)
	if err != nil {
		return nil, err
	}
	dst := make([]byte, 0, len(object)+len(old)+len(object)/4+512) // with an estimate of the patch
	dst = append(append(dst, `{"operation":"`...), ev.Type.String()...)
	dst = append(append(dst, `","object":`...), object...)
	d := difference{ChangedPaths: []string{}, Managers: []manager{}}
	if old == nil {
		dst = append(dst, `,"old":null,"patch":null`...)
		if ev.Type != Deleted { // the API server does not record who deletes; a restated object has no managedFields
			d.Managers = managersOf(ev.Object.ManagedFieldsJSON())
		}
	} else {
		dst = append(append(dst, `,"old":`...), old...)
		changes := jsonpatch.Diff(old, object)
		dst = jsonpatch.AppendPatch(append(dst, `,"patch":`...), changes)
		changes = slices.DeleteFunc(changes, isResourceVersion)
		for n := range changes {
			d.ChangedPaths = append(d.ChangedPaths, changes[n].Pointer())
		}
		d.Managers = ownersOf(ev.Object.ManagedFieldsJSON(), changes)
	}
	text, _ := json.Marshal(d) // Strings can always be marshaled.
	return append(append(dst, ','), text[1:]...), nil
}

// difference describes the difference between two states in the data of PayloadChange, in addition to the patch.
type difference struct {
	ChangedPaths []string  `json:"changedPaths"`
	Managers     []manager `json:"managers"`
}

// visibleOld returns the redacted state before an update. It returns nil for other events. It also returns nil if the
// bytes of the old state are not available. The event is then sent without the old state.
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

// isResourceVersion reports whether c changes metadata.resourceVersion, which differs after every change.
func isResourceVersion(c jsonpatch.Change) bool { return c.Pointer() == "/metadata/resourceVersion" }
