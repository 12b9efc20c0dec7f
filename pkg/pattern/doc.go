// Package pattern matches resources and namespaces in the notation of `watch`.
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
// The part before the first dot is the resource: the lower-case plural, as in URLs. If the second part looks like v1 or
// v2beta1, it is the version; otherwise any version matches. The rest is the group. Resource and group are globs as in
// [path.Match]. A name without a group refers to the core group, so `deployments` matches nothing. A glob without group
// and version, such as `*` or `pod*`, matches resources in every group.
//
// # Namespaces
//
// Namespaces are globs as in [path.Match]. An entry that starts with `!` excludes namespaces. Exclusions take
// precedence, regardless of the order. A list that contains only exclusions includes all other namespaces.
// Cluster-scoped objects have the namespace "". An empty list, a list that contains only exclusions, `*` and the entry
// "" match this namespace; `team-*` does not. The entry "!" excludes it.
package pattern
