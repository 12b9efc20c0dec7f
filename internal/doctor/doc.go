// Package doctor checks everything that the bridge requires to run, and changes nothing.
//
// It checks the same things as the bridge uses, in the same order: the API server (from the kubeconfig to a watch on
// each resource), the state directory, the process (memory, the HTTP port), and the destination of each sink. The
// result of each step is a [Finding]: what was checked, what was found and, if something is wrong, how to fix it. If a
// step fails, steps that depend on it are skipped; all others are still run.
//
// To check that the state directory is writable, doctor writes a file there and removes it. To check the rights, it
// sends the API server the requests of an informer: it requests an object that does not exist, lists one object of each
// resource, and opens a watch for a name that does not exist. For what is checked of a destination, see
// [diagnose.Checker].
package doctor
