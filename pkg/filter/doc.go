// Package filter decides which objects belong to a sink, and which of their changes are sent to it.
//
// Rules are compiled once, when the configuration is loaded. Decisions depend only on the object and its change. A
// filter reads no clock and keeps no state. If the labels of namespaces change, so does the filter
// ([Filter.WithNamespaces]). It may fetch the bytes of an object (Object.Bytes), which can be in the
// checkpoint, and it stores decisions in the object.
//
// # Rules
//
// A filter is a list of [Rule]. An event passes if it passes at least one rule. If there are no rules, every event
// passes. Within a rule, all conditions must hold. A condition that is not set always holds.
//
//	filters:
//	  - resources: [pods, "*.example.com"]
//	    namespaces: ["team-*", "!team-test"]
//	    operations: [added, updated]
//	    when: "object.status.phase != 'Running'"
//
// # Two kinds of conditions
//
// Conditions on the object decide whether an object belongs to the sink: resources, namespaces, namespaceSelector, and
// a `when` that uses only `object`. When an object starts to satisfy these conditions, the sink receives an addition, even if the API
// server reported an update. When an object no longer satisfies them, the sink receives a deletion, which is marked as
// a leave. client-go's FilteringResourceEventHandler does the same if its FilterFunc calls [ResourceFilter.Belongs].
//
// Conditions on the change decide whether a change to an object that belongs to the sink is sent: operations,
// ignoreChanges, onlyChanges, preset, and a `when` that uses `old` or `operation`. [ResourceFilter.Refusal] evaluates
// these conditions with the operation from the sink's point of view: "added" for an object that enters the filter,
// "deleted" for an object that leaves it. A suppressed change never moves an object across the border.
//
// A restated object has not changed, so only two conditions on the change apply: operations and `when`. Rules whose
// operations include additions or updates also let restated objects pass.
//
// If there are several rules, an object belongs to the sink if the object conditions of at least one rule hold. A
// change is sent if the object conditions and the change conditions of the same rule hold.
//
// Package pattern documents the notation of resources and namespaces.
//
// # Parts that an update changes
//
// If ignoreChanges is set, an update is sent if it changes a part of the object that no entry matches. If onlyChanges
// is set, an update is sent if it changes a part that an entry matches. An entry is a path, in which [*] stands for all
// elements of a list or all members of an object; in ignoreChanges an entry can also be the name of a preset. A rule
// with one of these keys always ignores metadata.resourceVersion, metadata.generation and metadata.managedFields. If a
// path leads through an object, there is no difference between an absent, a null and an empty object. Additions and
// deletions are not affected.
//
// The filter compares the bytes of the states directly before and after the change. It parses a value only if a path
// leads into that value. The state after a suppressed change is the old state of the next comparison, so a suppressed
// change is never sent later.
//
// # Debounce
//
// If debounce is set, the updates that the rule sends are to wait. [ResourceFilter.Debounce] returns for how long. The
// caller makes them wait, because a filter keeps no state.
//
// # When
//
// `when` is a CEL expression (https://cel.dev) whose result is true or false. An expression can use the variables
//
//	object     the new state, or the last known state for a deletion: the JSON of the API server
//	old        the state before an update; null for all other operations
//	operation  "added", "updated", "deleted" or "restated"
//
// the standard functions and macros, has(), optionals, and the extension libraries strings, lists, sets, math, regex,
// network (ip, cidr), bindings (cel.bind) and two-variable comprehensions. Most of these functions have the same names
// in Kubernetes' CEL. Numbers of different types can be compared: 3 == 3.0.
//
// An object may lack a field that an expression uses. The following expressions do not fail in this case:
//
//	has(object.status) && has(object.status.phase) && object.status.phase == 'Failed'
//	object.?status.?phase.orValue('') == 'Failed'
//	object.metadata.?labels['app.kubernetes.io/name'].orValue('') == 'web'
//	object.?spec.?containers.orValue([]).exists(c, c.image.startsWith('docker.io/'))
//	old == null || object.spec != old.spec
//
// # Expressions that fail
//
// If the evaluation of an expression fails, the expression counts as true, because a superfluous event is better than a
// missing one. Reasons for failures are a missing field, a string instead of a number, a result that is not a boolean,
// and a cost above the limit. [Options].OnError is called for each failure. Failures are logged at most once a minute
// per rule.
//
// CEL's cost model limits the cost of an evaluation. The cost model counts steps, not time. Therefore the result for an
// object is always the same, and nested loops cannot block the bridge.
//
// # Cached decisions
//
// The bridge checks each state of an object twice: when the state arrives, and when the next state replaces it.
// Therefore the object caches the result of each expression on the object ([object.Object.SetDecision]), in one slot
// per rule. [Options].Slot is the first slot, and [Filter.Slots] returns the number of slots. Sinks must not share
// slots. Beyond [object.Slots] decisions are not cached, and the expression is evaluated again. Because of the cache,
// call a filter with an object only from the goroutine of the object's informer or while the informer's lock is held.
//
// # Cost
//
// An expression reads the JSON of the object through a view, which decodes only the fields that the expression uses.
// This takes a few microseconds for a Pod; decoding the whole Pod takes about 50 microseconds. A whole structure is
// decoded if the expression compares the structure or loops over its keys.
package filter
