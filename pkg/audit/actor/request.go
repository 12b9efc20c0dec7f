package actor

import (
	"slices"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

const (
	stageComplete = "ResponseComplete"
	stagePanic    = "Panic"

	deleteCollection = "deletecollection"
)

// role says what the response of a request shows.
type role uint8

const (
	_ role = iota
	// unclear: neither a uid nor a resourceVersion. It may have changed the object with its name.
	unclear
	// shown: the version that the object has, which the request did not write: a dry run, or no effect.
	shown
	created
	updated
	emptied // an update that removed the last finalizer, and thereby deleted the object
	removed // DELETE
	listed  // deletecollection
	evicted
	bound
)

// outcome is what an audit event says about the effect of its request.
type outcome struct {
	role role
	can  Kind // the kinds of changes that it can have made
	// sure: it had an effect. This is not so if it may have been a dry run, and for unclear requests other than creations.
	sure bool
	open bool // it may have gone on after its audit event, such as after a timeout
	// gone: the object in the response does not exist any more. If a DELETE writes an update, and another request then
	// deletes the object, its response has a version before that update.
	gone bool
}

// request is what the join keeps of an audit event.
type request struct {
	outcome
	actor                        Actor
	resource                     string
	version                      uint64 // of the response; 0: none
	base                         uint64 // the resourceVersion that an update names; 0: none
	received, completed, arrived time.Time
	keys                         []key
	versions                     []uint64 // of the objects in the list of a deletecollection, one for each key
	size                         int
}

// key is what requests and changes have in common: a uid, a uid and a version, or a name. Names have no group, because
// a resource can be served in several, such as events. The name is empty for all objects in a namespace.
type key struct {
	resource, namespace, name, uid string
	version                        uint64
}

func nameKey(resource, namespace, name string) key {
	if resource == "namespaces" {
		namespace = "" // in audit events, it is the name
	}
	return key{resource: resource, namespace: namespace, name: name}
}

// newRequest returns what the join requires of an audit event, or nil if it requires nothing.
func (s *scanned) newRequest(e *audit.Event) *request {
	resource, sub := e.Object.Resource, e.Object.Subresource
	if resource == "bindings" {
		resource, sub = "pods", "binding" // the older path of the same
	}
	can := possible(e.Verb, sub)
	if can == 0 || e.Stage != stageComplete && e.Stage != stagePanic {
		return nil
	}
	s.scan(e)
	o := s.judge(e, sub, can)
	if o.role == 0 {
		return nil
	}
	r := &request{
		outcome: o, resource: resource, version: s.object.version, base: s.base(),
		received: e.Received, completed: e.StageTime, actor: Actor{User: e.User, AuditID: e.AuditID, Verb: e.Verb},
	}
	// All strings that are not in the event share one allocation, because they have the same lifetime. The first call
	// collects them.
	var all []byte
	s.fill(r, e, func(text []byte) string { all = append(all, text...); return "" })
	rest := string(all)
	s.fill(r, e, func(text []byte) (cut string) {
		cut, rest = rest[:len(text)], rest[len(text):]
		return cut
	})
	r.size = baseSize + len(all) + len(e.User) + len(e.AuditID) + len(e.Object.Namespace) + len(e.Object.Name) +
		keySize*len(r.keys) + stringSize*(len(s.groups)+len(s.impersonatedGroups)+len(s.sourceIPs))
	return r
}

// maxSource is how many of the addresses in sourceIPs are kept, from the end: the client chooses how many there are.
const maxSource = 8

// Approximate sizes in bytes, with what the maps need.
const (
	baseSize   = 600
	keySize    = 400
	stringSize = 16
)

// fill sets what in a request depends on texts of the event.
func (s *scanned) fill(r *request, e *audit.Event, text func([]byte) string) {
	list := func(to []string, from [][]byte) []string {
		to = to[:0]
		for _, t := range from {
			to = append(to, text(t))
		}
		return to
	}
	a := &r.actor
	a.UserAgent, a.Impersonated = text(s.userAgent), text(s.impersonated)
	a.Groups = list(a.Groups, s.groups)
	a.ImpersonatedGroups = list(a.ImpersonatedGroups, s.impersonatedGroups)
	a.SourceIPs = list(a.SourceIPs, s.sourceIPs[max(0, len(s.sourceIPs)-maxSource):])

	r.keys, r.versions = r.keys[:0], r.versions[:0]
	switch r.role {
	case unclear:
		name := e.Object.Name
		if e.Verb == deleteCollection {
			name = "" // whatever the event says
		}
		r.keys = append(r.keys, nameKey(r.resource, e.Object.Namespace, name))
	case shown, created, updated:
		r.keys = append(r.keys, key{uid: text(s.object.uid), version: r.version})
	case emptied:
		uid := text(s.object.uid)
		r.keys = append(r.keys, key{uid: uid, version: r.version}, key{uid: uid})
	case removed:
		r.keys = append(r.keys, key{uid: text(s.object.uid)})
	case listed:
		for i := range s.list {
			r.keys = append(r.keys, key{uid: text(s.list[i].uid)})
			r.versions = append(r.versions, s.list[i].version)
		}
	case evicted:
		r.keys = append(r.keys, key{uid: text(s.request.uid)})
	case bound:
		r.keys = append(r.keys, key{uid: e.Object.UID})
	}
}

// possible returns what a request can do.
func possible(verb, sub string) Kind {
	switch sub {
	case "exec", "attach", "portforward", "proxy", "token", "log":
		return 0
	}
	switch verb {
	case "delete", deleteCollection:
		return Marked | Remarked | deletion
	case "update", "patch":
		return Added | Updated | Remarked | Finished
	case "create":
		switch sub {
		case "":
			return Added
		case "binding":
			return Bound
		case "eviction": // writes a condition first
			return Updated | Marked | Remarked | deletion
		}
		return Updated | Remarked
	}
	return 0
}

// judge returns what the request has done.
func (s *scanned) judge(e *audit.Event, sub string, can Kind) outcome {
	if m := &s.object; e.Verb != deleteCollection && len(m.uid) == 0 && len(s.list) > 0 {
		*m = s.list[0]
	}
	whole := len(s.object.uid) > 0 && s.object.version > 0
	success := s.code/100 == 2 && e.Stage == stageComplete && !e.Received.IsZero() && !e.StageTime.IsZero()
	switch dryRun, sure := s.dryRun(e, sub); {
	case dryRun == dry && success && whole:
		return outcome{role: shown}
	case dryRun == dry, !success && s.failed(e, can):
		return outcome{}
	case !success:
		return outcome{role: unclear, can: can, open: s.code/100 != 4}
	case dryRun == maybeDry:
		return outcome{role: unclear, can: can}
	default:
		return s.judgeSuccess(e, sub, outcome{role: unclear, can: can, sure: sure}, whole)
	}
}

// judgeSuccess returns what a request with status 2xx has done. It is unclear if the response does not say of which
// version of which object.
func (s *scanned) judgeSuccess(e *audit.Event, sub string, o outcome, whole bool) outcome {
	m := &s.object
	switch {
	case sub == "binding" && e.Object.UID != "": // API servers compare it with that of the Pod
		o.role = bound
	case sub == "eviction" && len(s.request.uid) > 0:
		o.role = evicted
	case e.Verb == "delete" && (whole || len(m.uid) == 0 && len(s.deletedUID) > 0):
		if o.role, o.gone = removed, m.emptied(); !whole {
			m.uid, m.version = s.deletedUID, 0
		}
	case e.Verb == deleteCollection && s.hasList():
		o.role = listed
	case e.Verb == "delete", e.Verb == deleteCollection, sub == "binding", sub == "eviction":
	case s.code == 201 && sub == "":
		if o.can = Added; whole {
			o.role = created
		}
	case !whole, e.Verb == "create", m.emptied() && e.Object.Resource == "namespaces" && !s.spec:
		o.can &^= Added
	case m.emptied() && !s.specFinalizers:
		o.role, o.can = emptied, Finished
	case s.base() == m.version:
		o.role, o.can = shown, 0
	default:
		o.role, o.can = updated, Updated|Remarked
	}
	return o
}

// failed reports whether the status proves that nothing was written. A request can write and then fail: at a timeout,
// if the response cannot be converted into the requested form, or at the second of two writes, which deletions and
// evictions can have.
func (s *scanned) failed(e *audit.Event, can Kind) bool {
	deletes := can&Marked != 0
	switch s.code {
	case 401:
		return true
	case 403:
		return !deletes || s.forbidden
	case 404:
		return !deletes || e.Verb == "delete"
	case 409, 410, 413, 415, 422, 429:
		return !deletes
	}
	return false
}

// dryRun also reports whether it is sure that the request was no dry run. The options of a deletion are in its body. If
// it has a body, API servers ignore the parameters of the URI.
func (s *scanned) dryRun(e *audit.Event, sub string) (_ dryRun, sure bool) {
	uri := dryRunOf(s.uri)
	deletes := e.Verb == "delete" || e.Verb == deleteCollection
	switch level := string(s.level); {
	case s.request.dryRun && (deletes || sub == "eviction"):
		return dry, false
	case deletes && s.request.present:
		return notDry, true
	case deletes && (s.truncated || level != "Request" && level != "RequestResponse"): // there may be a body
		if uri == dry {
			uri = maybeDry
		}
		return uri, false
	}
	return uri, uri == notDry
}

// hasList reports whether the uids of all objects of a deletecollection are known.
func (s *scanned) hasList() bool {
	return s.listed && !s.more && !slices.ContainsFunc(s.list, func(m meta) bool { return len(m.uid) == 0 })
}

// base returns the resourceVersion without which an update would have been rejected, or 0.
func (s *scanned) base() uint64 {
	if s.request.directives {
		return 0
	}
	return s.request.version
}
