// Package doctor tries everything that the bridge would need to run, and changes nothing.
//
// It goes the way of the bridge: the API server (from the kubeconfig to a watch on each resource), the state folder, the
// process (memory, the HTTP port), and each sink's destination. Each step is a [Finding]: what was tried, what was found
// and, where something is wrong, what to do about it. A step that fails ends its own way; the others are tried all the same.
//
// To find out whether the state folder can be written it writes a file there, and removes it. It asks the API server what
// may be done (SelfSubjectAccessReview, which keeps nothing), lists one object of each resource, and opens a watch for a
// name that does not exist. What sinks do: [diagnose.Checker].
package doctor
