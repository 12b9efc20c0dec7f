// Package filter decides which objects belong to a sink, and which of their changes are sent to it.
//
// Rules are compiled once, when the configuration is loaded. The result depends only on the object and its change:
// there is no I/O, no clock and no state, and nothing is modified.
//
// # Rules
//
// A filter is a list of [Rule]. An event passes if any rule lets it pass. Without rules, everything passes. Within a
// rule all conditions must hold. A condition that is left out always holds.
//
//	filters:
//	  - resources: [pods, "*.example.com"]
//	    namespaces: ["team-*", "!team-test"]
//	    operations: [added, updated]
//	    when: "object.status.phase != 'Running'"
//
// # Two kinds of conditions
//
// Conditions on the object decide whether an object belongs to the sink: resources, namespaces, and a `when` that uses
// only `object`. An object that begins to satisfy them is added for this sink, whatever the API server called the
// change. An object that ceases to satisfy them is deleted for this sink, and the event says that the object only left
// the filter. client-go's FilteringResourceEventHandler does the same, with [ResourceFilter.Belongs] as its
// FilterFunc.
//
// Conditions on the change decide whether a change of an object that belongs is sent: operations, ignoreChanges,
// onlyChanges, preset, and a `when` that uses `old` or `operation`. [ResourceFilter.Refusal] evaluates them. They see
// the operation of this sink: an object that enters the filter is "added", one that leaves it is "deleted". A
// suppressed change moves no object across the border.
//
// An object that is restated has not changed: of the conditions on the change, only operations and `when` apply. Rules
// whose operations include additions or updates also let restated objects pass.
//
// With several rules an object belongs if the object conditions of any rule hold. A change is sent if both the object
// conditions and the change conditions of the same rule hold.
//
// # Resources
//
//	pods                 a resource of the core group
//	deployments.apps     resource and group
//	deployments.v1.apps  resource, version and group
//	events.v1            resource and version, core group
//	*.example.com        every resource of that group (not of sub.example.com)
//	*                    everything
//
// The text before the first dot is the resource: the lower-case plural, as in URLs. A second segment that looks like v1
// or v2beta1 is the version; without it, any version matches. The rest is the group. Resource and group are globs as in
// [path.Match]. A name without a group means the core group, so `deployments` matches nothing. A glob without group and
// version, such as `*` or `pod*`, matches in every group.
//
// # Namespaces
//
// Namespaces are globs as in [path.Match]. An entry that begins with `!` excludes namespaces; exclusions win, in any
// order. A list that has only exclusions includes all other namespaces. Cluster-scoped objects have the namespace "":
// an empty list, a list that has only exclusions, `*` and the entry "" match them; `team-*` does not. The entry "!"
// excludes them.
//
// # What an update touches
//
// With ignoreChanges an update is sent if it touches anything that no entry names. With onlyChanges it is sent if it
// touches something that an entry names. An entry is a path, in which [*] means all elements of a list or all members
// of an object; in ignoreChanges it can also be one of [ChangePresets]. A rule with either key always ignores
// metadata.resourceVersion, metadata.generation and metadata.managedFields. Where a path leads through an object, an
// absent, null or empty object are the same. Additions and deletions are not affected.
//
// The states directly before and after the change are compared, as bytes. Values are parsed only where a path leads. A
// suppressed change is not compared again: the next change is compared with the state that the suppressed one led to.
//
// # When
//
// `when` is a CEL expression (https://cel.dev) that returns true or false. It can use
//
//	object     the new state, or the last known state for a deletion: the JSON of the API server
//	old        the state before an update; null for all other operations
//	operation  "added", "updated", "deleted" or "restated"
//
// and the standard functions and macros, has(), optionals, and the extension libraries strings, lists, sets, math,
// regex, network (ip, cidr), bindings (cel.bind) and two-variable comprehensions. Most of them have the same names in
// Kubernetes' own CEL. Numbers compare across types: 3 == 3.0.
//
// An object may lack the field that an expression uses. These expressions are safe:
//
//	has(object.status) && has(object.status.phase) && object.status.phase == 'Failed'
//	object.?status.?phase.orValue('') == 'Failed'
//	object.metadata.?labels['app.kubernetes.io/name'].orValue('') == 'web'
//	object.?spec.?containers.orValue([]).exists(c, c.image.startsWith('docker.io/'))
//	old == null || object.spec != old.spec
//
// # An expression that fails
//
// An expression that fails on an object (a missing field, a string instead of a number, a result that is not a boolean,
// a cost above the limit) counts as true: an event too many is better than a lost event. [Options].OnError is called
// for each failure, and a failure is logged at most once a minute for each rule.
//
// The cost of an evaluation is limited by CEL's own cost model. It counts steps, not time, so the same object always
// has the same result, and loops within loops cannot block the bridge.
//
// # Remembered decisions
//
// An object's membership is needed twice: when the object is new, and when its next state arrives. The object therefore
// remembers the result of each expression on the object ([object.Object.SetDecision]), in one slot for each such rule.
// [Options].Slot is the first slot and [Filter.Slots] their number. Sinks must not share slots. Without a slot (beyond
// [object.Slots]) the expression is evaluated again. Because of these decisions, only the goroutine of an object's
// informer may call a filter with it.
//
// # Cost
//
// An expression reads the object's JSON through a view that decodes only the fields it uses. This takes a few
// microseconds for a Pod; decoding the whole Pod takes about 50. To compare two whole structures, or to loop over the
// keys of one, that structure is decoded.
package filter
