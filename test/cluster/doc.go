// Package cluster gives tests and local runs a real Kubernetes cluster: etcd and
// kube-apiserver as processes on 127.0.0.1, compiled from source by Build, and
// steered one by one.
//
// Contract:
//
//   - A Cluster is two processes (three with the controller manager) and one
//     folder, Options.Dir. The folder holds the data, the credentials, the
//     kubeconfigs and the output of the processes (*.log). A second Start on the
//     folder continues the same cluster on other ports.
//   - Each process can be stopped, killed and started again without the others.
//     It keeps its port.
//   - Start returns when the API server is ready and what it creates by itself
//     exists: the system namespaces and the service default/kubernetes. What a
//     test then finds changed, it changed itself, or the controller manager did.
//   - etcd never waits for the disk (it survives a kill of the process, not of
//     the machine), and nothing is compacted unless Options.CompactionInterval or
//     Compact asks for it. So History can tell the whole truth: an object's
//     resourceVersion is the etcd revision of its write.
//   - Stop leaves no process behind. On Linux neither does the death of the test
//     process, by whatever signal.
//
// What the cluster is made of, and what it lacks, stands in ../controlplane.
package cluster
