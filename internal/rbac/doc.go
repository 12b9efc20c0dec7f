// Package rbac computes what the bridge may have to read from the API server, as RBAC objects, from what its
// configuration watches.
//
// The rules, which docs/operations.md repeats for people and the Helm chart as a template:
//
//   - Each entry of `watch` that lists nothing but names of namespaces is granted in those, by a Role and a RoleBinding in
//     each. All others are granted in the whole cluster.
//   - A resource that is named gives get, list and watch on it, unless `exclude` names it.
//   - `*.example.com` gives list and watch on all of that group.
//   - `*` gives the same for the groups that are a part of Kubernetes, for those that Options.Groups adds, and for the core
//     group resource by resource: without Secrets. If the same entry names `secrets`, it gives list and watch on everything.
//   - With list and watch on all of a group comes get on one name, that of the object by which the bridge asks whether the
//     cluster has reached a resourceVersion. Get on all names would open subresources: logs, proxies to nodes.
//   - In the whole cluster: get on the namespace kube-system, whose uid tells clusters apart. With wildcards: get, list and
//     watch on customresourcedefinitions. With wildcards or a group with a dot in its name: list on apiservices, which tell
//     aggregated APIs apart.
//   - Discovery is granted to everyone who is authenticated, by Kubernetes itself (system:discovery).
//
// RBAC knows neither exclusions nor wildcards that are a part of a name. What can't be expressed is refused or noted, unless
// Options.Served resolves the wildcards to what the cluster serves.
package rbac
