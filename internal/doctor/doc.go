// Package doctor checks whether everything that the bridge requires is available. It does not change anything.
//
// The checks run in the order in which the bridge uses its dependencies: the API server (from the kubeconfig to a
// watch of each resource and, with a state log, the Lease), the state directory, the state log, and the
// destination of each sink. Each step results in a [Finding], which contains the checked item, the result and, if there
// is a problem, a remedy. If a step fails, the steps that depend on it are skipped, and all other steps still run.
//
// To check whether the state directory is writable, doctor writes a file to the directory and removes it. To check the
// permissions, doctor sends the same requests as an informer to the API server: it requests an object that does not
// exist, lists an object of each resource, and opens a watch for a name that does not exist. For the Lease, it asks the
// API server whether the requests would be allowed. [diagnose.Checker] describes the checks of destinations.
package doctor
