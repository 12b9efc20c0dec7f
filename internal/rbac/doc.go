// Package rbac computes the RBAC objects that the bridge requires to read the objects in its configuration from the API
// server and, if several replicas can run, to use their Lease.
//
// The rules are as follows. docs/operations.md explains them, and the Helm chart implements them as a template.
//
//   - If the `namespaces` of a `watch` entry are a list of plain names, a Role and a RoleBinding in each of these
//     namespaces grant access. For all other entries, access is granted in the whole cluster.
//   - A resource that is listed by name is granted get, list and watch, unless `exclude` lists the resource.
//   - `*.example.com` grants list and watch on all resources of the group.
//   - `*` grants list and watch on all resources of the Kubernetes API groups and of the groups in Options.Groups. In
//     the core group, it grants get, list and watch on each resource except Secrets. If the same entry also lists
//     `secrets`, `*` grants list and watch on everything.
//   - If list and watch are granted on a whole group, get is granted on a single name in this group: the name of the
//     object that the bridge requests to find out whether the cluster has reached a resourceVersion. Get on all names
//     would also grant access to subresources, such as logs and proxies to nodes.
//   - Get on the namespace kube-system is always granted, because the uid of this namespace identifies the cluster. If
//     `resources` contains wildcards, get, list and watch on customresourcedefinitions are granted too. If `resources`
//     contains wildcards or a group whose name has a dot, list on apiservices is granted, because APIServices show
//     which APIs are aggregated.
//   - With a state log, get, update and watch on the Lease are granted in its namespace, and create on all Leases in
//     this namespace.
//   - With http.peers, create on TokenReviews and SubjectAccessReviews, and post on the paths of commands are granted,
//     so that commands reach the leader from every replica.
//   - Discovery needs no rule, because Kubernetes grants it to all authenticated users (system:discovery).
//
// RBAC supports neither exclusions nor wildcards within a name. If Options.Served is set, wildcards are replaced with
// the resources that the cluster serves. Otherwise a part of the configuration that RBAC cannot express results in an
// error or a note.
package rbac
