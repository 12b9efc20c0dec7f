// Package enrich knows what other objects say of an object: who owns it, up to the top; which labels its namespace has; and
// for a Kubernetes Event, whose it is and which labels that has. It never asks the API server: it keeps facts of the objects
// that the informers hand on, in an index of its own.
//
// # Facts
//
// A fact is what a need asks for of one object: its owner, as its controller's reference or else its first owner reference
// names it; its labels. An object of which nothing is asked has none. Owners and labels are interned: the Pods of a
// ReplicaSet share them. A fact takes a quarter of a kilobyte (BenchmarkMemory), whatever the object's size.
//
// Facts of deleted objects stay for a while, by number and by age: the garbage collector deletes owners first, and the
// deletions of what they owned are to tell the same owner as all events before.
//
// # Best effort
//
// A context is as of when it is asked for. What is not known is left out, and a chain of owners ends at the last reference
// that is known: an owner reference names its object even where nothing else of that is known. Cycles end the chain too.
//
// # Ownership
//
// A Handler is the handler of one informer, called before those that ask for contexts; it is for the goroutine of that
// informer. The Index is safe for concurrent use. What it gives is immutable and shared.
package enrich
