package event

import "strings"

// Context contains information from other objects about an event's object, at the time of the event. Several messages
// share a Context, so it must not be modified.
type Context struct {
	// Owner is the topmost known owner of the object, or zero if the object has no owner.
	Owner Owner `json:"o,omitzero"`
	// NamespaceLabels contains the labels of the object's namespace. InvolvedLabels contains the labels of the object that
	// a Kubernetes Event is about. The format is a=b,c=d, sorted by key, without characters that require an escape. The
	// strings are empty if there are no labels or if the labels are not known.
	NamespaceLabels string `json:"n,omitempty"`
	InvolvedLabels  string `json:"i,omitempty"`
}

// Owner identifies an object as an owner reference does. The owner is in the namespace of the owned object, or is
// cluster-scoped.
type Owner struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
	UID        string `json:"uid,omitempty"`
}

// String returns <kind>[.<group>]/<name>, as in "Deployment.apps/web".
func (o *Owner) String() string {
	if group, _, grouped := strings.Cut(o.APIVersion, "/"); grouped {
		return o.Kind + "." + group + "/" + o.Name
	}
	return o.Kind + "/" + o.Name
}

// maxLabels is the maximum size of an attribute that contains labels, in bytes.
const maxLabels = 2048

// moreLabels is the end of an attribute whose last labels were omitted.
const moreLabels = ",..."

// labelsAttribute returns the labels. If they are longer than maxLabels, it omits the last labels.
func labelsAttribute(text string) string {
	if len(text) <= maxLabels {
		return text
	}
	end := strings.LastIndexByte(text[:maxLabels-len(moreLabels)+1], ',')
	return text[:max(0, end)] + moreLabels
}

// attributes yields the extension attributes of the context.
func (c *Context) attributes(yield func(name, value string) bool) bool {
	if c.Owner != (Owner{}) && (!yieldSet(yield, "owner", c.Owner.String()) || !yieldSet(yield, "owneruid", c.Owner.UID)) {
		return false
	}
	return yieldSet(yield, "namespacelabels", labelsAttribute(c.NamespaceLabels)) &&
		yieldSet(yield, "involvedlabels", labelsAttribute(c.InvolvedLabels))
}

// size returns the number of bytes that the context adds to a message's size in a queue.
func (c *Context) size() int {
	if c == nil {
		return 0
	}
	return contextOverhead + len(c.NamespaceLabels) + len(c.InvolvedLabels)
}

// contextOverhead is the size of the struct in bytes. The owner's strings are shared.
const contextOverhead = 96
