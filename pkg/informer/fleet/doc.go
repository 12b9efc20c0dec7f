// Package fleet runs informers: it keeps those that run in step with what is to be watched, and what the cluster
// serves.
//
// A [Fleet] runs the informers that its scopes ask for: it discovers what the cluster serves, starts an informer for
// what appears, and ends it when the resource is gone, which it takes from the API server's word about that one
// resource and never from a discovery document that merely lacks it.
//
//   - A resource that went with its CustomResourceDefinition: the deletion of each object that is still known is handed
//     on. Objects of any other resource may live on behind another API server: nothing is handed on, and should the
//     resource be back, its informer continues with what is known.
//   - An edited definition starts nothing anew. When the watched version is no longer served, another one is watched,
//     and nothing is handed on again.
//   - One storage under two names (Events) is watched once, under the first name, for the scopes of both.
//   - One resource is watched in one version: the one that the first scope which names it asks for.
//   - Each informer is on its own: one that RBAC forbids, or whose handler blocks, is reported and harms no other.
//     No start and no end of an informer waits for the handlers of another one.
package fleet
