package actor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// change returns a change of the configmap n/x with uid u, which has been read at 100 ms.
func change(kind Kind, before, after uint64) Change {
	return Change{
		Resource: "configmaps", Namespace: "n", Name: "x", UID: "u", Kind: kind, Before: before, After: after,
		Observed: at(100),
	}
}

func pod(kind Kind, before, after uint64) Change {
	c := change(kind, before, after)
	c.Resource = "pods"
	return c
}

// Requests of different users around an update of version 4 to version 5, at 100 ms.
var (
	patchOf = func(user string, from, to int) call {
		return call{user: user, verb: "patch", from: from, to: to, request: `{"data":{}}`, response: object("u", 5)}
	}
	evictionOf = func(user string) call {
		return call{
			user: user, verb: "create", resource: "pods", sub: "eviction", from: 80, to: 90,
			request: `{"deleteOptions":{"preconditions":{"uid":"u"}}}`,
		}
	}
	laterEviction = func(user string) call {
		c := evictionOf(user)
		c.from, c.to = 91, 95
		return c
	}
	markOf = func(user string) call {
		return call{user: user, verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)}
	}
	namespace = func(kind Kind) Change {
		return Change{Resource: "namespaces", Name: "x", UID: "u", Kind: kind, Before: 4, After: 5, Observed: at(100)}
	}
	emptyNamespace = `{"metadata":{"uid":"u","resourceVersion":"4"` + terminating + `},"spec":{}}`
	putOf          = func(user, base string, from, to int) call {
		return call{user: user, verb: "update", from: from, to: to, request: naming(base), response: object("u", 5)}
	}
)

var tests = []struct {
	name   string
	change Change
	calls  []call
	want   string // actor and grade; for deletions also who requested it
}{
	// What is joined with nothing.
	{"conflict", change(Updated, 4, 5), []call{{verb: "update", to: 90, code: 409, response: object("u", 5)}}, "-"},
	{
		"received",
		change(Updated, 4, 5),
		[]call{{verb: "update", to: 90, stage: "RequestReceived", response: object("u", 5)}},
		"-",
	},
	{
		"dry run",
		change(Updated, 4, 5),
		[]call{{verb: "update", to: 90, query: "dryRun=All", response: object("u", 5)}},
		"-",
	},
	{
		"dry creation",
		change(Added, 0, 5),
		[]call{{verb: "create", to: 90, query: "dryRun=All", response: object("u", 5)}},
		"-",
	},
	{"read", change(Updated, 4, 5), []call{{verb: "get", to: 90, response: object("u", 5)}}, "-"},

	// Creations and updates.
	{"201", change(Added, 0, 5), []call{{verb: "create", to: 90, response: object("u", 5)}}, "alice proven"},
	{
		"201 to a patch",
		change(Added, 0, 5),
		[]call{{verb: "patch", code: 201, to: 90, response: object("u", 5)}},
		"alice proven",
	},
	{"201 for another version", change(Added, 0, 6), []call{{verb: "create", to: 90, response: object("u", 5)}}, "-"},
	{"201 and an update", change(Updated, 4, 5), []call{{verb: "create", to: 90, response: object("u", 5)}}, "-"},
	{"update and an addition", change(Added, 0, 5), []call{patchOf("bob", 80, 90)}, "-"},
	{"version named", change(Updated, 4, 5), []call{putOf("alice", "4", 80, 90)}, "alice proven"},
	{
		"version named, others",
		change(Updated, 4, 5),
		[]call{patchOf("bob", 80, 90), putOf("alice", "4", 80, 90)},
		"alice proven",
	},
	{"another version named", change(Updated, 4, 5), []call{putOf("alice", "3", 80, 90)}, "-"},
	{"no effect", change(Updated, 4, 5), []call{putOf("bob", "5", 80, 90)}, "-"},
	{
		"no effect, and one",
		change(Updated, 4, 5),
		[]call{putOf("bob", "5", 80, 90), patchOf("alice", 81, 89)},
		"alice sole",
	},
	{"version 0 named", change(Updated, 4, 5), []call{putOf("alice", "0", 80, 90)}, "alice sole"},
	{"version 05 named", change(Updated, 4, 5), []call{putOf("bob", "05", 80, 90)}, "-"},
	{
		"version named and ignored", change(Updated, 4, 5),
		[]call{{
			verb: "patch", from: 80, to: 90, request: `{"metadata":{"$patch":"delete","resourceVersion":"4"}}`,
			response: object("u", 5),
		}},
		"alice sole",
	},
	{
		"version named twice", change(Updated, 4, 5),
		[]call{{
			verb: "patch", from: 80, to: 90, request: `{"metadata":{"resourceVersion":"4"},"metadata":{}}`,
			response: object("u", 5),
		}},
		"alice sole",
	},
	{
		"JSON patch",
		change(Updated, 4, 5),
		[]call{{verb: "patch", from: 80, to: 90, request: `[{"op":"add"}]`, response: object("u", 5)}},
		"alice sole",
	},
	{"patch", change(Updated, 4, 5), []call{patchOf("alice", 80, 90)}, "alice sole"},
	{"two patches", change(Updated, 4, 5), []call{patchOf("alice", 80, 90), patchOf("bob", 81, 91)}, "-"},
	{
		"two patches of a user",
		change(Updated, 4, 5),
		[]call{patchOf("alice", 80, 90), patchOf("alice", 80, 90)},
		"alice sole",
	},
	{"a later patch", change(Updated, 4, 5), []call{patchOf("alice", 80, 90), patchOf("bob", 91, 95)}, "alice sole"},
	{"later than a dry run", change(Updated, 4, 5), []call{
		{user: "carol", verb: "patch", from: 80, to: 85, query: "dryRun=All", response: object("u", 5)},
		patchOf("alice", 80, 90), patchOf("bob", 86, 95),
	}, "alice sole"},
	{"later than the change", change(Updated, 4, 5), []call{patchOf("bob", 101, 110)}, "-"},
	{"with a Table", change(Updated, 4, 5), []call{{
		verb: "patch", from: 80, to: 90,
		response: `{"kind":"Table","metadata":{"resourceVersion":"5"},"rows":[{"object":` + object("u", 5) + `}]}`,
	}}, "alice sole"},
	{"subresource", change(Updated, 4, 5), []call{{
		verb: "update", sub: "scale", from: 80, to: 90, request: naming("4"), response: object("u", 5),
	}}, "alice proven"},
	{"another resource", change(Updated, 4, 5), []call{{
		verb: "update", resource: "views", from: 80, to: 90, request: naming("4"), response: object("u", 5),
	}}, "-"},

	// Requests that may have written it, but do not show it.
	{
		"Table without objects",
		change(Updated, 4, 5),
		[]call{
			{
				user:     "bob",
				verb:     "patch",
				from:     70,
				to:       90,
				response: `{"kind":"Table","metadata":{"resourceVersion":"5"},"rows":[{"cells":[]}]}`,
			},
			patchOf("alice", 80, 90),
		},
		"-",
	},
	{
		"timeout",
		change(Updated, 4, 5),
		[]call{{user: "bob", verb: "patch", from: 0, to: 50, code: 504}, patchOf("alice", 80, 90)},
		"-",
	},
	{"panic", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 70, to: 90, stage: stagePanic, code: 500}, patchOf("alice", 80, 90),
	}, "-"},
	{
		"400 after the write",
		change(Updated, 4, 5),
		[]call{{user: "bob", verb: "patch", from: 70, to: 90, code: 400}, patchOf("alice", 80, 90)},
		"-",
	},
	{"Metadata, before the version before", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 0, to: 50, code: 200, level: "Metadata"},
		patchOf("alice", 80, 90),
		{user: "carol", verb: "patch", from: 51, to: 60, response: object("u", 4)},
	}, "alice sole"},
	{"400 before the version before", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 0, to: 50, code: 400},
		patchOf("alice", 80, 90),
		{user: "carol", verb: "patch", from: 51, to: 60, response: object("u", 4)},
	}, "alice sole"},
	{"504 before the version before", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 0, to: 50, code: 504},
		patchOf("alice", 80, 90),
		{user: "carol", verb: "patch", from: 51, to: 60, response: object("u", 4)},
	}, "-"},
	{
		"404",
		change(Updated, 4, 5),
		[]call{{user: "bob", verb: "patch", from: 70, to: 90, code: 404}, patchOf("alice", 80, 90)},
		"alice sole",
	},
	{
		"truncated",
		change(Updated, 4, 5),
		[]call{
			{
				user:        "bob",
				verb:        "patch",
				from:        70,
				to:          90,
				annotations: `{"audit.k8s.io/truncated":"true"}`,
			},
			patchOf("alice", 80, 90),
		},
		"-",
	},
	{"exec", pod(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", resource: "pods", sub: "exec", from: 70, to: 90},
		{user: "bob", verb: "create", resource: "pods", sub: "exec", from: 70, to: 90},
		{verb: "patch", resource: "pods", from: 80, to: 90, response: object("u", 5)},
	}, "alice sole"},
	{"Metadata, another object", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", name: "y", from: 70, to: 90, level: "Metadata"}, patchOf("alice", 80, 90),
	}, "alice sole"},
	{"Metadata, too early", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: -5000, to: -4901, level: "Metadata"}, patchOf("alice", 80, 90),
	}, "alice sole"},
	{"Metadata, too late", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 101, to: 110, level: "Metadata"}, patchOf("alice", 80, 90),
	}, "alice sole"},
	{
		"too many parameters",
		change(Updated, 4, 5),
		[]call{
			{
				user:     "bob",
				verb:     "patch",
				from:     70,
				to:       90,
				query:    "dryRun=All" + string(slices.Repeat([]byte("&"), 10_000)),
				response: object("u", 5),
			},
			patchOf("alice", 80, 90),
		},
		"-",
	},
	{
		"creation at Metadata",
		change(Added, 0, 5),
		[]call{{verb: "create", from: 80, to: 90, level: "Metadata"}},
		"alice sole",
	},
	{
		"two creations at Metadata",
		change(Added, 0, 5),
		[]call{
			{
				verb:  "create",
				from:  80,
				to:    90,
				level: "Metadata",
			},
			{user: "bob", verb: "create", from: 80, to: 90, level: "Metadata"},
		},
		"-",
	},

	{"no version in the response", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 70, to: 90, response: `{"metadata":{"uid":"u"}}`}, patchOf("alice", 80, 90),
	}, "-"},
	{"panic after a response", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 70, to: 90, stage: stagePanic, response: object("u", 5)},
	}, "-"},
	{"too many parameters alone", change(Updated, 4, 5), []call{
		{verb: "patch", from: 70, to: 90, query: "dryRun=All" + strings.Repeat("&", 10_000), response: object("u", 5)},
	}, "-"},
	{"subresource that creates", change(Added, 0, 5), []call{
		{verb: "create", sub: "instantiate", from: 70, to: 90, response: object("u", 5)},
	}, "-"},
	{
		"creation with 200",
		change(Updated, 4, 5),
		[]call{{verb: "create", code: 200, to: 90, response: object("u", 5)}},
		"-",
	},
	{"creation at Metadata, and updates", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", code: 201, level: "Metadata", from: 70, to: 90}, patchOf("alice", 80, 90),
	}, "alice sole"},
	{"creation and update at Metadata", change(Added, 0, 5), []call{
		{user: "bob", verb: "patch", level: "Metadata", from: 70, to: 90},
		{verb: "create", level: "Metadata", from: 70, to: 90},
	}, "alice sole"},
	{"the version before a deletion", change(Updated, 3, 4), []call{
		{verb: "patch", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
	}, "-"},
	{
		"409",
		change(Updated, 4, 5),
		[]call{{user: "bob", verb: "patch", from: 70, to: 90, code: 409}, patchOf("alice", 80, 90)},
		"alice sole",
	},
	{
		"401",
		change(Updated, 4, 5),
		[]call{{user: "bob", verb: "patch", from: 70, to: 90, code: 401}, patchOf("alice", 80, 90)},
		"alice sole",
	},
	{"an object with the field dryRun", change(Updated, 4, 5), []call{
		{verb: "update", from: 70, to: 90, request: `{"dryRun":["All"]}`, response: object("u", 5)},
	}, "alice sole"},
	{"deletion denied by a webhook", change(Marked, 4, 5), []call{
		{user: "bob", verb: "deletecollection", from: 80, to: 90, code: 403}, markOf("alice"),
	}, "-"},
	{"deletion of what is gone", change(Marked, 4, 5), []call{
		{user: "bob", verb: "delete", from: 80, to: 90, code: 404}, markOf("alice"),
	}, "alice sole"},
	{"eviction of what is gone", pod(Updated, 4, 5), []call{
		{user: "bob", verb: "create", resource: "pods", sub: "eviction", from: 70, to: 90, code: 404},
		{verb: "patch", resource: "pods", from: 80, to: 90, response: object("u", 5)},
	}, "-"},
	{"Namespace, part of it alone", namespace(Finished), []call{
		{verb: "patch", resource: "namespaces", from: 80, to: 90, response: object("u", 4, terminating)},
	}, "-, requested by -"},
	{
		"version named and ignored at the top",
		change(Updated, 4, 5),
		[]call{
			{
				verb:     "patch",
				from:     80,
				to:       90,
				request:  `{"$patch":"replace","metadata":{"resourceVersion":"4"}}`,
				response: object("u", 5),
			},
		},
		"alice sole",
	},
	{"truncated deletion", change(Deleted, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, deleted: "u", annotations: `{"audit.k8s.io/truncated":"true"}`},
	}, "alice sole, requested by alice sole"},
	{
		"deletecollection without a list",
		change(Marked, 4, 5),
		[]call{
			{
				user:     "bob",
				verb:     "deletecollection",
				from:     80,
				to:       90,
				response: `{"kind":"Status","metadata":{}}`,
			},
			markOf("alice"),
		},
		"-",
	},
	{"failed deletecollection with a name", change(Marked, 4, 5), []call{
		{user: "bob", verb: "deletecollection", name: "y", from: 80, to: 90, code: 409}, markOf("alice"),
	}, "-"},
	{"list that is too long", change(Marked, 4, 5), []call{
		{
			user: "bob", verb: "deletecollection", from: 80, to: 90,
			response: `{"items":[` + strings.Repeat(object("v", 4)+",", maxItems) + object("u", 4) + `]}`,
		},
		markOf("alice"),
	}, "-"},
	{
		"evicted by two, version before is not known",
		pod(Marked, 0, 5),
		[]call{evictionOf("alice"), laterEviction("bob")},
		"-",
	},
	{"failed creation", change(Added, 0, 5), []call{{verb: "create", from: 80, to: 90, code: 504}}, "-"},
	{"creation at Metadata, and another that failed", change(Added, 0, 5), []call{
		{verb: "create", from: 80, to: 90, level: "Metadata"}, {user: "bob", verb: "patch", from: 80, to: 90, code: 400},
	}, "-"},
	{"RequestReceived", change(Updated, 4, 5), []call{
		{user: "bob", verb: "patch", from: 70, to: 70, stage: "RequestReceived"}, patchOf("alice", 80, 90),
	}, "alice sole"},
	{"Namespace", namespace(Updated), []call{
		{user: "bob", verb: "patch", resource: "namespaces", from: 70, to: 90, level: "Metadata"},
		{verb: "patch", resource: "namespaces", from: 80, to: 90, response: object("u", 5)},
	}, "-"},
	{"finalizers", change(Remarked, 4, 5), []call{patchOf("alice", 80, 90)}, "alice sole"},
	{"finalizers at Metadata", change(Remarked, 4, 5), []call{
		{user: "bob", verb: "patch", from: 70, to: 90, level: "Metadata"}, patchOf("alice", 80, 90),
	}, "-"},

	// Requests to delete.
	{"deletion requested", change(Marked, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)},
	}, "alice sole"},
	{"requested twice", change(Marked, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)},
		{user: "bob", verb: "delete", from: 85, to: 95, response: object("u", 5, terminating, finalizer)},
	}, "-"},
	{"requested again", change(Marked, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)},
		{user: "bob", verb: "delete", from: 91, to: 95, response: object("u", 5, terminating, finalizer)},
	}, "alice sole"},
	{"requested, and a patch", change(Marked, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)}, patchOf("bob", 85, 95),
	}, "alice sole"},
	{"a patch of what is deleted", change(Updated, 4, 5), []call{
		{user: "bob", verb: "delete", from: 70, to: 95, response: object("u", 5, terminating, finalizer)},
		patchOf("alice", 80, 90),
	}, "alice sole"},
	{"finalizers of what is deleted", change(Remarked, 4, 5), []call{
		{user: "bob", verb: "delete", from: 70, to: 95, response: object("u", 5, terminating, finalizer)},
		patchOf("alice", 80, 90),
	}, "-"},
	{"evicted", pod(Marked, 4, 5), []call{evictionOf("alice")}, "alice sole"},
	{"evicted, grace period", pod(Remarked, 4, 5), []call{evictionOf("alice")}, "alice sole"},
	{
		"evicted by name",
		pod(Marked, 4, 5),
		[]call{{verb: "create", resource: "pods", sub: "eviction", from: 80, to: 90, request: `{}`}},
		"-",
	},
	{
		"eviction is dry",
		pod(Marked, 4, 5),
		[]call{
			{verb: "delete", resource: "pods", from: 80, to: 90, response: object("u", 5, terminating)},
			{
				user:     "bob",
				verb:     "create",
				resource: "pods",
				sub:      "eviction",
				from:     80,
				to:       90,
				request:  `{"deleteOptions":{"dryRun":["All"]}}`,
			},
		},
		"alice sole",
	},
	{"condition of an eviction", pod(Updated, 4, 5), []call{
		{verb: "create", resource: "pods", sub: "eviction", from: 80, to: 95, code: 429, request: `{}`},
		{user: "bob", verb: "patch", resource: "pods", from: 85, to: 95, response: object("u", 5)},
	}, "-"},
	{"condition of an eviction alone", pod(Updated, 4, 5), []call{evictionOf("alice")}, "-"},
	{"deleted in between", pod(Marked, 4, 5), []call{
		{user: "bob", verb: "delete", resource: "pods", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
		evictionOf("alice"),
	}, "-"},
	{"an older deletion", pod(Marked, 4, 5), []call{
		{user: "bob", verb: "delete", resource: "pods", from: 80, to: 90, response: object("u", 4, terminating, finalizer)},
		evictionOf("alice"),
	}, "alice sole"},
	{
		"bound",
		pod(Bound, 4, 5),
		[]call{{verb: "create", resource: "pods", sub: "binding", refUID: "u", from: 80, to: 90}},
		"alice proven",
	},
	{
		"bound, the old path",
		pod(Bound, 4, 5),
		[]call{{verb: "create", resource: "bindings", refUID: "u", from: 80, to: 90}},
		"alice proven",
	},
	{"bound by name", pod(Bound, 4, 5), []call{
		{verb: "create", resource: "pods", sub: "binding", from: 80, to: 90},
		{user: "bob", verb: "patch", resource: "pods", from: 80, to: 90, response: object("u", 5)},
	}, "-"},

	// Deletions.
	{
		"deleted",
		change(Deleted, 4, 5),
		[]call{{verb: "delete", from: 80, to: 90, deleted: "u"}},
		"alice proven, requested by alice proven",
	},
	{"deleted, uid in the Status only", change(Deleted, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, deleted: "u", response: `{"kind":"Status","metadata":{}}`},
	}, "alice proven, requested by alice proven"},
	{
		"deleted, another uid",
		change(Deleted, 4, 5),
		[]call{{verb: "delete", from: 80, to: 90, deleted: "v"}},
		"-, requested by -",
	},
	{"deleted at Metadata", change(Deleted, 4, 5), []call{
		{verb: "delete", level: "Metadata", from: 80, to: 90, deleted: "u"},
	}, "alice sole, requested by alice sole"},
	{"deletion is dry", change(Deleted, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, deleted: "u", request: `{"dryRun":["All"]}`},
		{verb: "delete", from: 80, to: 90, deleted: "u", query: "dryRun=All"},
	}, "-, requested by -"},
	{"deletion with a body is not dry", change(Deleted, 4, 5), []call{
		{verb: "delete", from: 80, to: 90, deleted: "u", request: `{}`, query: "dryRun=All"},
	}, "alice proven, requested by alice proven"},
	{"dry at Metadata, perhaps", change(Deleted, 4, 5), []call{
		{verb: "delete", level: "Metadata", from: 80, to: 90, deleted: "u", query: "dryRun=All"},
		{user: "bob", verb: "deletecollection", from: 80, to: 90, response: `{"items":[` + object("u", 4) + `]}`},
	}, "-, requested by -"},
	{"deleted, and in a list", change(Deleted, 4, 5), []call{
		{user: "bob", verb: "deletecollection", from: 80, to: 90, response: `{"items":[` + object("u", 4) + `]}`},
		{verb: "delete", from: 80, to: 90, deleted: "u"},
	}, "alice proven, requested by alice proven"},
	{"in a list", change(Deleted, 4, 5), []call{
		{verb: "deletecollection", from: 80, to: 90, response: `{"items":[` + object("w", 3) + `,` + object("u", 4) + `]}`},
	}, "alice sole, requested by alice sole"},
	{
		"in a list as a Table",
		change(Marked, 4, 5),
		[]call{
			{
				verb:     "deletecollection",
				from:     80,
				to:       90,
				response: `{"rows":[{"object":` + object("w", 3) + `},{"object":` + object("u", 4) + `}]}`,
			},
		},
		"alice sole",
	},
	{"in a later list", change(Marked, 4, 5), []call{
		{verb: "deletecollection", from: 80, to: 90, response: `{"items":[` + object("u", 5) + `]}`},
	}, "-"},
	{"list without objects", change(Marked, 4, 5), []call{
		{user: "bob", verb: "deletecollection", from: 80, to: 90, response: `{"rows":[{"cells":[]}]}`},
		{verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)},
	}, "-"},
	{"failed deletecollection", change(Marked, 4, 5), []call{
		{user: "bob", verb: "deletecollection", from: 80, to: 90, code: 409},
		{verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)},
	}, "-"},
	{
		"forbidden deletecollection",
		change(Marked, 4, 5),
		[]call{
			{
				user:        "bob",
				verb:        "deletecollection",
				from:        80,
				to:          90,
				code:        403,
				annotations: `{"authorization.k8s.io/decision":"forbid"}`,
			},
			{verb: "delete", from: 80, to: 90, response: object("u", 5, terminating, finalizer)},
		},
		"alice sole",
	},
	{
		"last state is not known",
		change(Finished, 0, 0),
		[]call{{verb: "delete", from: 80, to: 90, deleted: "u"}},
		"alice sole, requested by -",
	},
	{"deleted Pod", pod(Finished, 4, 5), []call{
		{verb: "delete", resource: "pods", from: 80, to: 90, response: object("u", 5, terminating, noGrace)},
		{user: "bob", verb: "delete", resource: "pods", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
	}, "alice proven, requested by -"},
	{"evicted Pod, and another deletion", pod(Finished, 4, 5), []call{
		{user: "bob", verb: "delete", resource: "pods", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
		evictionOf("alice"),
	}, "alice sole, requested by -"},
	{"last finalizer at Metadata", change(Finished, 4, 5), []call{
		{user: "bob", verb: "patch", from: 80, to: 90, level: "Metadata"},
		{verb: "patch", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
	}, "-, requested by -"},
	{
		"Namespace that has finalizers in spec",
		namespace(Finished),
		[]call{
			{
				verb:     "patch",
				resource: "namespaces",
				from:     80,
				to:       90,
				response: `{"metadata":{"uid":"u","resourceVersion":"4"` + terminating + `},"spec":{"finalizers":["f"]}}`,
			},
		},
		"-, requested by -",
	},
	{
		"Namespace",
		namespace(Finished),
		[]call{
			{
				verb:     "update",
				sub:      "finalize",
				resource: "namespaces",
				from:     80,
				to:       90,
				request:  naming("4"),
				response: emptyNamespace,
			},
		},
		"alice sole, requested by -",
	},
	{
		"Namespace, part of it",
		namespace(Finished),
		[]call{
			{user: "bob", verb: "patch", resource: "namespaces", from: 80, to: 90, response: object("u", 4, terminating)},
			{
				verb:     "update",
				sub:      "finalize",
				resource: "namespaces",
				from:     80,
				to:       90,
				request:  naming("4"),
				response: emptyNamespace,
			},
		},
		"-, requested by -",
	},
	{"last finalizer", change(Finished, 4, 5), []call{
		{user: "bob", verb: "delete", from: 10, to: 20, response: object("u", 3, terminating, finalizer)},
		{verb: "update", from: 80, to: 90, request: naming("4"), response: object("u", 4, terminating, noGrace)},
	}, "alice sole, requested by -"},
	{"last finalizer, no grace period", change(Finished, 4, 5), []call{
		{verb: "patch", from: 80, to: 90, response: object("u", 4, terminating)},
	}, "alice sole, requested by -"},
	{"last finalizer, twice", change(Finished, 4, 5), []call{
		{verb: "patch", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
		{user: "bob", verb: "patch", from: 85, to: 95, response: object("u", 4, terminating, noGrace)},
	}, "-, requested by -"},
	{"last finalizer, in a list", change(Finished, 4, 5), []call{
		{user: "bob", verb: "deletecollection", from: 50, to: 79, response: `{"items":[` + object("u", 3) + `]}`},
		{verb: "patch", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
	}, "alice sole, requested by -"},
	{"last finalizer, in a list at the same time", change(Finished, 4, 5), []call{
		{user: "bob", verb: "deletecollection", from: 50, to: 81, response: `{"items":[` + object("u", 3) + `]}`},
		{verb: "patch", from: 80, to: 90, response: object("u", 4, terminating, noGrace)},
	}, "-, requested by -"},
	{"not the last finalizer", change(Finished, 4, 5), []call{
		{verb: "patch", from: 80, to: 90, response: object("u", 4, terminating, noGrace, finalizer)},
	}, "-, requested by -"},
	{
		"grace period",
		pod(Finished, 4, 5),
		[]call{
			{
				verb:     "patch",
				resource: "pods",
				from:     80,
				to:       90,
				response: object("u", 4, terminating, `,"deletionGracePeriodSeconds":30`),
			},
		},
		"-, requested by -",
	},
}

// outcomeOf gives a joiner a change and events in some order, and returns the answer. A number is an event;
// len(calls) is the change.
func outcomeOf(t *testing.T, c Change, calls []call, order []int) string {
	t.Helper()
	j := New(Options{})
	var got []Answer
	for _, n := range order {
		if n == len(calls) {
			got = append(got, j.Change(c)...)
		} else {
			got = append(got, j.Event(calls[n].event(t), at(calls[n].to+10))...)
		}
	}
	early := len(got) > 0
	got = append(got, j.Expire(c.Observed.Add(5*time.Second-1))...)
	if !early && len(got) > 0 {
		t.Error("an answer before the end of the wait")
	}
	got = append(got, j.Expire(c.Observed.Add(5*time.Second))...)
	if len(got) != 1 || got[0].Change != c && got[0].Change.UID != c.UID {
		t.Fatalf("%d answers: %v", len(got), got)
	}
	a := got[0]
	if proven := a.By != nil && a.By.Grade == Proven; proven != early {
		t.Errorf("%v is given early: %t", a.By, early)
	}
	j.Expire(at(1_000_000))
	if len(j.slots)+len(j.requests)+len(j.waiting)+j.bytes > 0 {
		t.Errorf("%d slots, %d requests, %d changes, %d bytes remain", len(j.slots), len(j.requests), len(j.waiting), j.bytes)
	}
	if c.Kind&deletion != 0 {
		return fmt.Sprintf("%v, requested by %v", a.By, a.Requested)
	}
	return a.By.String()
}

// permute calls f with each order of the numbers up to n.
func permute(order []int, n int, f func([]int)) {
	if len(order) == n {
		f(order)
		return
	}
	for i := range n {
		if !slices.Contains(order, i) {
			permute(append(slices.Clone(order), i), n, f)
		}
	}
}

// Whatever the order in which a change and audit events arrive, the actor is the one of the table in ADR 43.
func TestTable(t *testing.T) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			permute(nil, len(test.calls)+1, func(order []int) {
				if got := outcomeOf(t, test.change, test.calls, order); got != test.want {
					t.Errorf("order %v: %s, want %s", order, got, test.want)
				}
			})
		})
	}
}
