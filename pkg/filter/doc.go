// Package filter decides which objects belong to a sink, and which of their changes are sent to it.
//
// Rules are compiled once, when the configuration is loaded. What comes of it answers yes or no from the
// object alone: no I/O, no clock, no state that an answer depends on. Nothing is ever changed on the way.
//
// # Rules
//
// A filter is a list of [Rule]. An event passes if any rule lets it pass; without rules everything passes.
// Inside a rule every condition has to hold; a condition that is left out holds always.
//
//	filters:
//	  - resources: [pods, "*.example.com"]
//	    namespaces: ["team-*", "!team-test"]
//	    operations: [added, updated]
//	    when: "object.status.phase != 'Running'"
//
// # Two kinds of conditions
//
// Conditions on the object alone decide whether an object belongs to the sink: resources, namespaces, and a
// `when` that speaks of nothing but `object`. An object that begins to satisfy them is added for this sink,
// whatever the API server called the change; one that ceases to satisfy them is deleted for this sink, and the
// event says that it only left the filter. That is client-go's FilteringResourceEventHandler, whose FilterFunc
// is [ResourceFilter.Belongs].
//
// Conditions on the change decide whether a change of an object that belongs is sent: operations, ignoreChanges,
// onlyChanges, preset, and a `when` that mentions `old` or `operation`, as a whole. They are [ResourceFilter.Sends]. The operation that they
// see is the one of this sink: an object that moves into the filter is "added" there, one that leaves is
// "deleted". A change that is not sent moves nothing over a border.
//
// An object that is told once more, as it is, changes nothing: of the conditions on the change, operations and `when` count.
// Rules that let additions or updates pass by their operations let it pass, too.
//
// With several rules an object belongs if the object conditions of any rule hold, and a change is sent if the
// conditions on the change hold in one of the rules whose object conditions hold.
//
// # Resources
//
//	pods                 that resource of the core group
//	deployments.apps     resource and group
//	deployments.v1.apps  resource, version and group
//	events.v1            resource and version, core group
//	*.example.com        every resource of that group (and not of sub.example.com)
//	*                    everything
//
// The text up to the first dot is the resource: the lower-case plural, as in URLs. A second segment that looks
// like v1 or v2beta1 is the version; without it, any version. The rest is the group. Resource and group are
// globs as [path.Match] has them. A name without a group means the core group, so that `deployments` matches
// nothing (see [ResourcePattern.Unqualified]); a glob without group and version, such as `*` or `pod*`, looks in
// every group.
//
// # Namespaces
//
// Globs as [path.Match] has them; an entry that begins with `!` excludes, and exclusions win, wherever they
// stand. A list of exclusions only means everything else. Objects that are cluster-scoped have the namespace
// "": an empty list matches them, exclusions only, `*`, and the entry "", but not `team-*`. The entry "!"
// excludes them.
//
// # What an update touches
//
// With ignoreChanges an update is sent if it touches anything besides what the entries name; with onlyChanges, if it touches
// what one of them names. An entry is a path, in which [*] stands for all elements of a list or all members of an object, or
// in ignoreChanges one of [ChangePresets]. A rule that has either never counts metadata.resourceVersion, metadata.generation
// and metadata.managedFields: they say that something changed, and not what. An object that is absent, null or empty is the
// same here as long as a path leads on through it. Additions and deletions are not concerned.
//
// What is compared are the states directly before and after the change, as bytes; values are looked into only where a path
// leads. A change that is not sent moves on all the same: the next one is compared with the state that it led to.
//
// # When
//
// A CEL expression (https://cel.dev) with a result of true or false, over
//
//	object     the new state; for a deletion the last known one. The JSON of the API server: object.spec.replicas
//	old        the state before an update; null for all else
//	operation  "added", "updated", "deleted", or "restated" for an object that is told once more
//
// There are the standard functions and macros, has() and optionals included, and the extension libraries
// strings, lists, sets, math, regex, network (ip, cidr), bindings (cel.bind) and two-variable comprehensions,
// of which Kubernetes' own CEL has most under the same names. Numbers compare across types: 3 == 3.0.
//
// An object does not always have the field that an expression asks for. To ask for it in safety:
//
//	has(object.status) && has(object.status.phase) && object.status.phase == 'Failed'
//	object.?status.?phase.orValue('') == 'Failed'
//	object.metadata.?labels['app.kubernetes.io/name'].orValue('') == 'web'
//	object.?spec.?containers.orValue([]).exists(c, c.image.startsWith('docker.io/'))
//	old == null || object.spec != old.spec
//
// # An expression that fails
//
// An expression that fails on one object (a missing field, a string where a number was expected, a result that is
// not true or false, a cost over the limit) is taken as true: one event too many is better than a lost one. Each
// failure is counted through [Options].OnError and, at most once a minute for each rule, logged.
//
// What an evaluation may cost is limited (CEL's own cost model, a number of steps and not of seconds, so that
// the same object always has the same answer): a loop over loops can't hang the bridge.
//
// # Remembering
//
// An object is asked twice whether it belongs: when it is new, and when its successor arrives. The answer of an
// expression is therefore kept on the object ([object.Object.SetDecision]), in one slot for each rule that has an
// expression over the object alone. [Options].Slot is the first, [Filter.Slots] how many; sinks must not share
// slots. Beyond [object.Slots] nothing is remembered, and expressions are evaluated again.
//
// As the decisions of an object are, a filter is asked about an object by the goroutine of its informer only.
//
// # Cost
//
// An expression sees the object's JSON through a view that finds a field when it is asked for, and decodes nothing
// else: a few microseconds for a Pod, against some 50 for decoding it. Comparing two whole structures, or looping
// over the keys of one, decodes that one.
package filter
