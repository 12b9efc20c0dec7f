// Package fleet runs the informers: one for each resource that is to be watched and that the cluster serves, or, if
// only some namespaces are watched, one for each of them.
//
// A [Fleet] discovers which resources the cluster serves, starts an informer for each new resource that its scopes
// select, and ends the informer when the resource is removed. A resource counts as removed only if the API server
// confirms this for the resource itself. It is not enough that a discovery document lacks the resource.
//
//   - If a resource was removed together with its CustomResourceDefinition, every object that is still known is
//     reported as deleted. Objects of any other resource may still exist behind another API server, so nothing is
//     reported. If the resource is served again, its informer continues with the known objects.
//   - When a definition is edited, no informer starts again. When the watched version is no longer served, the fleet
//     watches another version, and delivers no objects again.
//   - The API server serves Kubernetes Events under two resource names, with the same storage. The fleet watches them
//     once, under the first name, for the scopes of both names.
//   - A resource is watched in only one version: the one that the first matching scope selects.
//   - Informers are independent of each other. If RBAC forbids a watch or a handler blocks, the fleet reports it, and
//     all other informers continue. Starting or ending an informer never waits for the handlers of another one.
package fleet
