// Package enrich collects what other objects say about an object: its top owner, the labels of its namespace and, for a
// Kubernetes Event, the labels and the owner of the object that it is about. It never queries the API server: it builds
// an index of facts from the objects that informers pass to its handlers.
//
// # Facts
//
// A fact has the parts of one object that Needs ask for: its owner, which is its controller or else its first owner
// reference, and its labels. Objects of which nothing is needed have no fact. Owners and labels are interned, so the
// Pods of a ReplicaSet share them. A fact takes a quarter of a kilobyte (BenchmarkMemory), whatever the size of the
// object.
//
// Facts of deleted objects are kept for a while, limited by number and age: the garbage collector deletes owners first,
// and the deletion events of their dependents must name the same owner as all earlier events.
//
// # Best effort
//
// A context reflects what is known when it is requested. Unknown parts are left out. A chain of owners ends at the last
// known reference, which names its object even if nothing else is known about it. A cycle also ends the chain.
//
// # Concurrency
//
// A Handler belongs to one informer. It must be called before the handlers that request contexts, and from the
// informer's goroutine only. The Index is safe for concurrent use. The contexts that it returns are shared and must not
// be modified.
package enrich
