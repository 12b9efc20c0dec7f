// Package rbac computes the RBAC objects that grant the bridge what its configuration makes it read from the API
// server.
//
// The rules, which docs/operations.md explains and the Helm chart implements as a template:
//
//   - An entry of `watch` whose `namespaces` are all plain names is granted in these namespaces, by a Role and a
//     RoleBinding in each. Every other entry is granted in the whole cluster.
//   - A resource that is named is granted with get, list and watch, unless `exclude` names it.
//   - `*.example.com` grants list and watch on all resources of that group.
//   - `*` grants list and watch on all resources of the groups that are part of Kubernetes and of those in
//     Options.Groups. In the core group it grants get, list and watch on each resource except Secrets. If the same
//     entry names `secrets`, `*` grants list and watch on everything.
//   - List and watch on a whole group come with get on one name: that of the object with which the bridge asks whether
//     the cluster has reached a resourceVersion. Get on all names would grant subresources too: logs, and proxies to
//     nodes.
//   - In the whole cluster: get on the namespace kube-system, whose uid identifies the cluster. With wildcards: get,
//     list and watch on customresourcedefinitions. With wildcards or a group with a dot in its name: list on
//     apiservices, which say which APIs are aggregated.
//   - Discovery is granted to all authenticated users by Kubernetes itself (system:discovery).
//
// RBAC has neither exclusions nor wildcards within a name. If Options.Served is set, wildcards are resolved to the
// resources that the cluster serves. Otherwise what RBAC can't express is an error or a note.
package rbac
