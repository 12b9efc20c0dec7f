// Package enrich adds data of other objects to an object's events: the top owner of the object, the labels of its
// namespace and, for a Kubernetes Event, the labels and the owner of the object that the Event is about. The package
// never queries the API server. It builds an index of facts from the objects that informers pass to its handlers.
//
// # Facts
//
// A fact contains the parts of one object that the Needs require: its labels and its owner. The owner is the controller
// or, if there is no controller, the first owner reference. An object without such parts has no fact. Owners and labels
// are interned, so the Pods of a ReplicaSet share them. A fact uses about 200 bytes (BenchmarkMemory), regardless of
// the size of the object.
//
// Facts of deleted objects are kept for some time, limited by number and age (an LRU cache). The garbage collector
// deletes owners first, and the deletion events of their dependents must name the same owner as all earlier events.
//
// # Best effort
//
// A context contains what the index knows at the time of the call. Unknown parts are left out. A chain of owners ends
// at the last known reference, which names the owner even if the index knows nothing else about it. A chain also ends
// at a cycle.
//
// # Concurrency
//
// Every Handler belongs to one informer. It must be called before the handlers that request contexts, and only from the
// goroutine of the informer. The Index is safe for concurrent use. The returned contexts must not be modified.
package enrich
