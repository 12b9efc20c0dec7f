// Command controlplane is a real Kubernetes control plane for tests and for
// local runs: etcd and kube-apiserver, compiled from their Go modules into one
// binary that needs nothing else on the machine.
//
// Contract:
//
//   - Each half is a process of its own ("controlplane etcd", "controlplane
//     apiserver"), so that a test can stop, kill or restart one and leave the
//     other alone. Package test/cluster starts and ends them.
//   - Everything lives in one folder (--dir): etcd's data, certificates, keys,
//     tokens, kubeconfigs and logs. An empty folder becomes a new cluster; the
//     folder of an earlier run becomes that cluster again, with the same
//     certificate authority, tokens and service-account key. Only the ports and
//     with them the kubeconfigs may change between runs.
//   - All listeners are on 127.0.0.1. etcd speaks plain HTTP without
//     authentication there, with its HTTP/JSON gateway on: whoever may connect
//     to the loopback interface of the machine may read and write the cluster.
//     Do not put anything into it that must stay secret.
//   - The API server runs with RBAC. The admin of the kubeconfig is in the group
//     system:masters; service accounts and their tokens work as in any cluster.
//     The ServiceAccount admission plugin is off, so that a Pod can be created
//     in a namespace where no controller has made a "default" service account.
//     The flag --enable-admission-plugins=ServiceAccount enables it.
//   - There is no kubelet and no scheduler: Pods stay Pending. test/node adds
//     them.
//
// The kube-controller-manager is a second binary (./controllermanager), because
// it adds a good minute to the build and most tests have no use for it.
//
// The module is separate from the main one to keep k8s.io/kubernetes and etcd
// out of the main go.mod.
package main
