package event

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"unicode"
)

// Actors says who made a change.
type Actors struct {
	// By made the change. Of a deletion, it is who completed it.
	By Actor `json:"b,omitzero"`
	// Requester is who requested a deletion. It is nil for other changes.
	Requester *Actor `json:"r,omitempty"`
}

// Actor is the user whose request made a change. The zero Actor is unknown.
type Actor struct {
	Grade    string   `json:"g,omitempty"` // one of the Actor constants, or empty if the actor is unknown
	User     string   `json:"u,omitempty"` // who was authenticated
	Groups   []string `json:"gs,omitempty"`
	As       string   `json:"as,omitempty"` // who was impersonated; empty if nobody was
	AsGroups []string `json:"ags,omitempty"`
	Address  string   `json:"ip,omitempty"` // of the connection to the API server
	Agent    string   `json:"ua,omitempty"`
	AuditID  string   `json:"id,omitempty"`
}

// The grades of actors. See docs/events.md.
const (
	ActorProven  = "proven"
	ActorSole    = "sole"
	ActorUnknown = "unknown"
)

// The maximum sizes of attributes in bytes. What is longer is cut, and ends with cutMark. Clients choose user agents
// and audit ids, and authenticators set no limit for the names of users and groups.
const (
	maxActorName  = 1024
	maxActorText  = 256
	maxActorGroup = 2048 // all groups together
	cutMark       = "..."
)

// GradeOf returns the grade of who made the change, which is ActorUnknown if it is not known. a may be nil.
func (a *Actors) GradeOf() string {
	if a == nil {
		return ActorUnknown
	}
	return a.By.grade()
}

func (a *Actor) grade() string { return cmp.Or(a.Grade, ActorUnknown) }

// attributes yields the extension attributes.
func (a *Actors) attributes(yield func(name, value string) bool) bool {
	by := &a.By
	return yieldSet(yield, "actorgrade", by.grade()) &&
		yieldSet(yield, "actor", actorText(by.User, maxActorName)) &&
		yieldSet(yield, "actorgroups", groupsText(by.Groups)) &&
		yieldSet(yield, "actoras", actorText(by.As, maxActorName)) &&
		yieldSet(yield, "actorasgroups", groupsText(by.AsGroups)) &&
		yieldSet(yield, "actoraddress", actorText(by.Address, maxActorText)) &&
		yieldSet(yield, "actoragent", actorText(by.Agent, maxActorText)) &&
		yieldSet(yield, "auditid", actorText(by.AuditID, maxActorText)) &&
		(a.Requester == nil || a.Requester.requesterAttributes(yield))
}

func (a *Actor) requesterAttributes(yield func(name, value string) bool) bool {
	return yieldSet(yield, "requestergrade", a.grade()) &&
		yieldSet(yield, "requester", actorText(a.User, maxActorName)) &&
		yieldSet(yield, "requesteras", actorText(a.As, maxActorName)) &&
		yieldSet(yield, "requesterauditid", actorText(a.AuditID, maxActorText))
}

// actorText returns a text in a form that an attribute may have: without control characters, and not too long. What is
// replaced becomes U+FFFD, so that no name becomes that of another user.
func actorText(text string, longest int) string {
	if len(text) > longest {
		text = text[:longest] + cutMark
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, string(unicode.ReplacementChar)))
}

// groupsText returns the groups as a JSON array, because their names can contain any character.
func groupsText(groups []string) string {
	if len(groups) == 0 {
		return ""
	}
	var names []string
	size := 0
	for _, group := range groups {
		name := actorText(group, maxActorName)
		if size += len(name); size > maxActorGroup {
			names = append(names, cutMark)
			break
		}
		names = append(names, name)
	}
	var text strings.Builder
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	_ = e.Encode(names) // strings can always be encoded
	return strings.TrimSuffix(text.String(), "\n")
}

// actorsOverhead is the size of the structs in bytes.
const actorsOverhead = 160

// size returns the number of bytes that the actors add to a message's size in a queue.
func (a *Actors) size() (size int) {
	if a == nil {
		return 0
	}
	size = actorsOverhead
	for _, by := range []*Actor{&a.By, a.Requester} {
		if by == nil {
			continue
		}
		size += len(by.User) + len(by.As) + len(by.Address) + len(by.Agent) + len(by.AuditID)
		for _, group := range slices.Concat(by.Groups, by.AsGroups) {
			size += len(group)
		}
	}
	return size
}

// mergedActors returns the actors of a merged message (Merge), which has the type of the older one and the state of the
// newer one: no single request made that change.
func mergedActors(older, newer *Message) *Actors {
	if older.Actors == nil && newer.Actors == nil {
		return nil
	}
	return &Actors{}
}
